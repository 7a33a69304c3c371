//! `identity`: whom the directory belongs to.

use crate::finding::Bad;
use crate::ids::unhex;

/// What `identity` says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    pub cluster_id: String,
    pub node_id: i32,
    /// In slots, checkpoints and tick indexes.
    pub directory_id: [u8; 16],
    pub incarnation: u64,
}

impl Identity {
    /// Lines `key = value`, `#` begins a comment.
    pub fn parse(bytes: &[u8]) -> Result<Identity, Bad> {
        let text = String::from_utf8_lossy(bytes);
        let field = |name: &str| {
            text.lines()
                .filter(|line| !line.trim_start().starts_with('#'))
                .filter_map(|line| line.split_once('='))
                .find(|(key, _)| key.trim() == name)
                .map(|(_, value)| value.trim().to_owned())
                .ok_or_else(|| Bad::new(0, format!("it has no line {name:?}")))
        };
        let format = field("format")?;
        if format != "1" {
            return Err(Bad::newer(0, format!("format = {format}")));
        }
        let bad = |name: &str, value: &str| Bad::new(0, format!("{name} = {value:?}"));
        let (node, directory, incarnation) = (
            field("node.id")?,
            field("directory.id")?,
            field("incarnation")?,
        );
        Ok(Identity {
            cluster_id: field("cluster.id")?,
            node_id: node.parse().map_err(|_| bad("node.id", &node))?,
            directory_id: unhex(&directory).ok_or_else(|| bad("directory.id", &directory))?,
            incarnation: incarnation
                .parse()
                .map_err(|_| bad("incarnation", &incarnation))?,
        })
    }
}
