//! Parameters of the query protocol: flat names with numbers from 1.

use dstack_backend_sdk::tags::Tags;

/// Parameters of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Params {
    pairs: Vec<(String, String)>,
    filters: usize,
    specs: usize,
}

impl Params {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Sets one parameter.
    pub(crate) fn set(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.pairs.push((name.into(), value.to_string()));
        self
    }

    /// Sets one parameter if there is a value.
    pub(crate) fn maybe(self, name: &str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.set(name, value),
            None => self,
        }
    }

    /// `name.1`, `name.2` and so on.
    pub(crate) fn list<V: ToString>(
        mut self,
        name: &str,
        values: impl IntoIterator<Item = V>,
    ) -> Self {
        for (at, value) in values.into_iter().enumerate() {
            self = self.set(format!("{name}.{}", at + 1), value);
        }
        self
    }

    /// Only what has one of these values there.
    pub(crate) fn filter<V: ToString>(
        mut self,
        name: &str,
        values: impl IntoIterator<Item = V>,
    ) -> Self {
        self.filters += 1;
        let at = self.filters;
        self.set(format!("Filter.{at}.Name"), name)
            .list(&format!("Filter.{at}.Value"), values)
    }

    /// Tags of a thing of EC2 that the request makes.
    pub(crate) fn tags(mut self, resource_type: &str, tags: &Tags) -> Self {
        self.specs += 1;
        let spec = format!("TagSpecification.{}", self.specs);
        let this = self.set(format!("{spec}.ResourceType"), resource_type);
        this.pairs_of(&format!("{spec}.Tag"), tags)
    }

    /// Tags as pairs of `Key` and `Value` below `name`.
    pub(crate) fn pairs_of(mut self, name: &str, tags: &Tags) -> Self {
        for (at, (key, value)) in tags.iter().enumerate() {
            let at = at + 1;
            self = self
                .set(format!("{name}.{at}.Key"), key)
                .set(format!("{name}.{at}.Value"), value);
        }
        self
    }

    pub(crate) fn pairs(&self) -> &[(String, String)] {
        &self.pairs
    }
}

#[cfg(test)]
mod tests {
    use super::Params;
    use dstack_backend_sdk::tags::Tags;

    #[test]
    fn lists_are_numbered_from_one() {
        let tags = Tags::from([("a".to_owned(), "1".to_owned())]);
        let params = Params::new()
            .list("Id", ["x", "y"])
            .filter("vpc-id", ["v"])
            .filter("state", ["s"])
            .tags("instance", &tags);
        let text: Vec<String> = params
            .pairs()
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(
            text.join(" "),
            "Id.1=x Id.2=y Filter.1.Name=vpc-id Filter.1.Value.1=v Filter.2.Name=state Filter.2.Value.1=s \
             TagSpecification.1.ResourceType=instance TagSpecification.1.Tag.1.Key=a TagSpecification.1.Tag.1.Value=1"
        );
    }
}
