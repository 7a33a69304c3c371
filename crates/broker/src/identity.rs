//! Who a data directory belongs to: drawn when it is made, the same for ever after.
//!
//! `<data dir>/identity` is a few lines of text that a person can read. It is written once, before
//! anything else, and never changed; journal, segments and checkpoints carry the same ids, so that
//! files of another directory are refused.

use std::path::{Path, PathBuf};

use tidemark_disk::{Disk, read_all, write_atomic};

use crate::error::StartError;

const FILE: &str = "identity";
const FORMAT: &str = "1";

/// The ids of a data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// As clients see it: Kafka's 22 characters, or what `cluster.id` gave.
    pub cluster_id: String,
    pub node_id: i32,
    /// In the marks of segments, checkpoints and slots.
    pub directory_id: [u8; 16],
    /// Which life of this node's data this is.
    pub incarnation: u64,
}

impl Identity {
    /// Reads the identity of a directory, `None` if it has none yet.
    pub fn read(disk: &dyn Disk, data_dir: &Path) -> Result<Option<Identity>, StartError> {
        let path = data_dir.join(FILE);
        if !disk
            .exists(&path)
            .map_err(|e| StartError::io("look at", &path, e))?
        {
            return Ok(None);
        }
        let bytes = read_all(disk, &path).map_err(|e| StartError::io("read", &path, e))?;
        let text = String::from_utf8_lossy(&bytes);
        if let Some(format) = field(&text, "format").filter(|format| *format != FORMAT) {
            return Err(StartError::Identity {
                path,
                what: format!("it is of format {format:?}, this release reads {FORMAT}"),
                mend: "start the release that wrote it, or a later one".to_owned(),
            });
        }
        Identity::parse(&text)
            .map(Some)
            .ok_or_else(|| StartError::Identity {
                path,
                what: "it is not what Tidemark writes there".to_owned(),
                mend: "restore this file from a copy of the data directory".to_owned(),
            })
    }

    /// Writes the identity of a new directory, durable when this returns.
    pub fn write(&self, disk: &dyn Disk, data_dir: &Path) -> Result<(), StartError> {
        write_atomic(disk, data_dir, FILE, self.render().as_bytes())
            .map_err(|e| StartError::io("write", &data_dir.join(FILE), e))
    }

    fn render(&self) -> String {
        let directory_id: String = self
            .directory_id
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        format!(
            "# Who this data directory belongs to. Written once; do not edit.\n\
             format = {FORMAT}\n\
             cluster.id = {}\n\
             node.id = {}\n\
             directory.id = {directory_id}\n\
             incarnation = {}\n",
            self.cluster_id, self.node_id, self.incarnation
        )
    }

    fn parse(text: &str) -> Option<Identity> {
        let field = |name: &str| field(text, name);
        if field("format")? != FORMAT {
            return None;
        }
        let hex = field("directory.id")?;
        let mut directory_id = [0; 16];
        if hex.len() != 32 || !hex.is_ascii() {
            return None;
        }
        for (byte, digits) in directory_id.iter_mut().zip(hex.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Identity {
            cluster_id: field("cluster.id")?.to_owned(),
            node_id: field("node.id")?.parse().ok()?,
            directory_id,
            incarnation: field("incarnation")?.parse().ok()?,
        })
    }

    /// The configuration must not contradict the directory.
    pub fn check(
        &self,
        data_dir: &Path,
        node_id: i32,
        cluster_id: Option<&str>,
    ) -> Result<(), StartError> {
        let path: PathBuf = data_dir.join(FILE);
        if self.node_id != node_id {
            return Err(StartError::Identity {
                path,
                what: format!(
                    "it belongs to node.id {}, the configuration says {node_id}",
                    self.node_id
                ),
                mend: format!(
                    "set node.id to {}, or give this broker a directory of its own",
                    self.node_id
                ),
            });
        }
        match cluster_id {
            Some(wanted) if wanted != self.cluster_id => Err(StartError::Identity {
                path,
                what: format!(
                    "it belongs to cluster.id {}, the configuration says {wanted}",
                    self.cluster_id
                ),
                mend: format!(
                    "set cluster.id to {}, or leave it out: the directory keeps it",
                    self.cluster_id
                ),
            }),
            _ => Ok(()),
        }
    }
}

/// A field of the file.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('='))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim())
}

/// 16 random bytes in Kafka's spelling of a cluster id: 22 characters of URL-safe base64.
pub fn cluster_id_text(bytes: [u8; 16]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::with_capacity(22);
    for chunk in bytes.chunks(3) {
        let mut group = [0u8; 3];
        group[..chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for digit in 0..=chunk.len() {
            let index = (bits >> (18 - 6 * digit)) & 63;
            text.push(char::from(DIGITS[index as usize]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_reads_back_and_contradictions_are_named() {
        let identity = Identity {
            cluster_id: "AAECAwQFBgcICQoLDA0ODw".to_owned(),
            node_id: 3,
            directory_id: [7; 16],
            incarnation: 99,
        };
        assert_eq!(Identity::parse(&identity.render()), Some(identity.clone()));
        assert_eq!(
            Identity::parse(&identity.render().replace("format = 1", "format = 2")),
            None
        );
        let refused = identity
            .check(Path::new("/d"), 4, None)
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("node.id 3") && refused.contains("set node.id to 3"),
            "{refused}"
        );
        assert!(identity.check(Path::new("/d"), 3, Some("other")).is_err());
        assert!(identity.check(Path::new("/d"), 3, None).is_ok());
    }

    #[test]
    fn cluster_ids_are_spelled_as_kafka_does() {
        let mut bytes = [0; 16];
        bytes.iter_mut().enumerate().for_each(|(i, b)| *b = i as u8);
        assert_eq!(cluster_id_text(bytes), "AAECAwQFBgcICQoLDA0ODw");
    }
}
