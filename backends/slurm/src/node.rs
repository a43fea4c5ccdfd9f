//! Nodes of a cluster, as `scontrol show -o node` prints them: one line each, words of the form `Key=Value`.

use dstack_backend_sdk::prelude::CpuArchitecture;

/// States in which a node takes no job.
const UNUSABLE: [&str; 8] = [
    "DOWN",
    "DRAIN",
    "FAIL",
    "ERROR",
    "FUTURE",
    "UNKNOWN",
    "NOT_RESPONDING",
    "MAINT",
];

/// What a node has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) arch: CpuArchitecture,
    pub(crate) cpus: u32,
    pub(crate) memory_mib: u64,
    pub(crate) gpus: Vec<Gres>,
    pub(crate) partitions: Vec<String>,
    /// Whether it takes jobs now or after those that it has.
    pub(crate) is_usable: bool,
}

/// GPUs of one sort.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gres {
    /// The administrator's word for the sort, if there is one.
    pub(crate) word: Option<String>,
    pub(crate) count: u32,
}

impl Node {
    /// All nodes of the text. Lines that tell of none, or of one without processors, are left out.
    pub(crate) fn read_all(text: &str) -> Vec<Self> {
        text.lines().filter_map(Self::read).collect()
    }

    fn read(line: &str) -> Option<Self> {
        // The reason of a state is people's own text, it stands near the end.
        let line = line.split(" Reason=").next().unwrap_or_default();
        let value = |key: &str| {
            line.split_whitespace()
                .filter_map(|word| word.split_once('='))
                .find(|(known, _)| *known == key)
                .map(|(_, value)| value)
        };
        let number = |key: &str| value(key).and_then(|text| text.parse::<u32>().ok());
        let cpus = number("CPUEfctv").or_else(|| number("CPUTot"))?;
        let memory_mib = value("RealMemory").and_then(|text| text.parse().ok())?;
        let state = value("State").unwrap_or_default();
        let partitions = value("Partitions").unwrap_or_default().split(',');
        (cpus > 0).then_some(())?;
        Some(Self {
            name: value("NodeName")?.to_owned(),
            arch: arch(value("Arch").unwrap_or_default()),
            cpus,
            memory_mib,
            gpus: gres(value("Gres").unwrap_or_default()),
            partitions: partitions
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect(),
            is_usable: !UNUSABLE.iter().any(|word| state.contains(word)),
        })
    }
}

fn arch(word: &str) -> CpuArchitecture {
    if word.starts_with("aarch") || word.starts_with("arm") {
        CpuArchitecture::Arm
    } else {
        CpuArchitecture::X86
    }
}

/// Reads `gpu:a100:4(S:0,2),nic:1`.
fn gres(text: &str) -> Vec<Gres> {
    let mut depth = 0_u32;
    let plain: String = text
        .chars()
        .filter(|c| {
            match c {
                '(' => depth += 1,
                ')' => {
                    depth = depth.saturating_sub(1);
                    return false;
                }
                _ => {}
            }
            depth == 0
        })
        .collect();
    plain.split(',').filter_map(one_gres).collect()
}

fn one_gres(text: &str) -> Option<Gres> {
    let words: Vec<&str> = text.split(':').collect();
    let (word, count) = match words.as_slice() {
        ["gpu"] => (None, 1),
        ["gpu", last] => match last.parse() {
            Ok(count) => (None, count),
            Err(_) => (Some(*last), 1),
        },
        ["gpu", word, count] => (Some(*word), count.parse().ok()?),
        _ => return None,
    };
    (count > 0).then(|| Gres {
        word: word.map(str::to_owned),
        count,
    })
}

#[cfg(test)]
mod tests {
    use super::{Gres, Node, gres};
    use dstack_backend_sdk::prelude::CpuArchitecture;

    fn sort(word: Option<&str>, count: u32) -> Gres {
        Gres {
            word: word.map(str::to_owned),
            count,
        }
    }

    #[test]
    fn gpus_are_counted_by_their_sort() {
        assert_eq!(gres("(null)"), []);
        assert_eq!(gres(""), []);
        assert_eq!(gres("gpu:1"), [sort(None, 1)]);
        assert_eq!(gres("gpu:8(S:0-1)"), [sort(None, 8)]);
        assert_eq!(gres("gpu:a100:4(S:0,2),nic:2"), [sort(Some("a100"), 4)]);
        assert_eq!(
            gres("gpu:a100:2,gpu:h100:1"),
            [sort(Some("a100"), 2), sort(Some("h100"), 1)]
        );
        assert_eq!(gres("gpu:0"), []);
        assert_eq!(gres("gpu:tesla"), [sort(Some("tesla"), 1)]);
    }

    #[test]
    fn nodes_are_read_from_what_a_cluster_printed() {
        let nodes = Node::read_all(include_str!("../tests/it/recorded/nodes.txt"));
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["n1", "n2"]);
        let n1 = &nodes[0];
        assert_eq!((n1.cpus, n1.memory_mib), (2, 1000));
        assert_eq!(n1.gpus, [sort(None, 1)]);
        assert_eq!(n1.partitions, ["cpu", "gpu"]);
        assert_eq!(n1.arch, CpuArchitecture::X86);
        assert!(n1.is_usable);
        assert!(nodes[1].gpus.is_empty());
    }

    #[test]
    fn what_people_write_of_a_node_is_not_taken_for_facts() {
        let line = "NodeName=a Arch=aarch64 CPUTot=4 CPUEfctv=3 RealMemory=100 State=IDLE+DRAIN Partitions=p Reason=CPUEfctv=9 Gres=gpu:5 [root]";
        let nodes = Node::read_all(line);
        assert_eq!((nodes[0].cpus, nodes[0].is_usable), (3, false));
        assert_eq!(nodes[0].arch, CpuArchitecture::Arm);
        assert_eq!(Node::read_all("No nodes in the system\n\n"), []);
    }
}
