//! What operators write.

use tidemark_config::{ConfigFile, FileKind, Inputs, load};

fn run(kind: FileKind, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let file = ConfigFile {
        path: "fuzz".to_owned(),
        kind,
        text,
    };
    let loaded = load(&Inputs {
        file: Some(file),
        ..Inputs::default()
    });
    // What is wrong is told in words.
    if let Err(problems) = loaded {
        assert!(!problems.to_string().is_empty());
    }
}

pub fn properties(bytes: &[u8]) {
    run(FileKind::Properties, bytes);
}

pub fn properties_seeds() -> Vec<Vec<u8>> {
    [
        "listeners=PLAINTEXT://:9092\nlog.dirs=/tmp/a\n",
        "num.partitions = 3\n# a comment\nlog.retention.ms:-1\n",
        "log.cleanup.policy=compact,\\\n  delete\nmessage.max.bytes=1000\n",
        "bogus=1\nnode.id=x\nlog.segment.bytes=\\u0031024\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}

pub fn toml(bytes: &[u8]) {
    run(FileKind::Toml, bytes);
}

pub fn toml_seeds() -> Vec<Vec<u8>> {
    [
        "listeners = \"PLAINTEXT://:9092\"\n\"log.dirs\" = \"/tmp/a\"\n",
        "[log]\nretention.ms = -1\ncleanup.policy = [\"compact\", \"delete\"]\n",
        "[journal]\nsync = \"interval:5\"\nslot.bytes = 1048576\n",
        "bogus = 1\nnode.id = \"x\"\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}
