//! Prometheus' text format, with whole numbers written as floats.

use std::collections::BTreeSet;

/// Names and values of labels, in their order.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// What kind of numbers a family has.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Classes.
    Histogram,
}

/// Numbers of one name.
#[derive(Debug)]
pub(crate) struct Family {
    name: &'static str,
    head: String,
    samples: String,
}

impl Family {
    /// Without numbers.
    pub(crate) fn new(name: &'static str, help: &str, kind: Kind) -> Self {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        Self {
            name,
            head: format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"),
            samples: String::new(),
        }
    }

    /// Adds a number.
    pub(crate) fn add(&mut self, labels: &Labels, value: f64) {
        self.add_as("", labels, value);
    }

    /// Adds a number under the family's name with an ending.
    pub(crate) fn add_as(&mut self, ending: &str, labels: &Labels, value: f64) {
        self.samples.push_str(self.name);
        self.samples.push_str(ending);
        self.samples.push('{');
        self.samples.push_str(&pairs(labels));
        self.samples.push_str(&format!("}} {value:?}\n"));
    }
}

fn pairs(labels: &Labels) -> String {
    let pair = |(name, value): &(&str, String)| {
        let value = value
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        format!("{name}=\"{value}\"")
    };
    labels.iter().map(pair).collect::<Vec<_>>().join(",")
}

/// A whole text.
#[derive(Debug, Default)]
pub(crate) struct Text {
    text: String,
    /// Heads of foreign families that are there already.
    heads: BTreeSet<String>,
}

impl Text {
    /// Adds families; those without numbers are left out.
    pub(crate) fn extend(&mut self, families: impl IntoIterator<Item = Family>) {
        for family in families {
            if !family.samples.is_empty() {
                self.text.push_str(&family.head);
                self.text.push_str(&family.samples);
            }
        }
    }

    /// Adds the text of an exporter with more labels on each number.
    pub(crate) fn append_labelled(&mut self, exporter: &str, labels: &Labels) {
        let more = pairs(labels);
        for line in exporter
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
        {
            if line.starts_with('#') {
                if self.heads.insert(line.to_owned()) {
                    self.text.push_str(line);
                    self.text.push('\n');
                }
                continue;
            }
            let labelled = match line.rsplit_once('}') {
                Some((head, value)) => {
                    let comma = if head.ends_with('{') { "" } else { "," };
                    Some(format!("{head}{comma}{more}}}{value}"))
                }
                None => line
                    .split_once(' ')
                    .map(|(name, value)| format!("{name}{{{more}}} {value}")),
            };
            if let Some(labelled) = labelled {
                self.text.push_str(&labelled);
                self.text.push('\n');
            }
        }
    }

    /// The text.
    pub(crate) fn finish(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::Text;

    #[test]
    fn an_exporters_numbers_get_our_labels() {
        let mut text = Text::default();
        let labels = vec![("job", "j".to_owned())];
        text.append_labelled("# TYPE A gauge\nA{gpu=\"0\"} 87\nB 1\nC{} 2\n\n", &labels);
        text.append_labelled("# TYPE A gauge\nA{gpu=\"1\"} 3\n", &labels);
        assert_eq!(
            text.finish(),
            "# TYPE A gauge\nA{gpu=\"0\",job=\"j\"} 87\nB{job=\"j\"} 1\nC{job=\"j\"} 2\nA{gpu=\"1\",job=\"j\"} 3\n"
        );
    }
}
