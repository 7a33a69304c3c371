//! What every store does, on each of them; and what becomes of a directory that is damaged.

use std::fs;

use tidemark_node_store::{Batch, KvStore, MemoryStore, SledStore};

fn put(store: &dyn KvStore, entries: &[(&str, &str)]) {
    let mut batch = Batch::default();
    for (key, value) in entries {
        batch.put(*key, *value);
    }
    store.apply(batch).unwrap();
}

fn text(found: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<String> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    found
        .into_iter()
        .map(|(k, v)| text(k) + "=" + &text(v))
        .collect()
}

fn conforms(store: &dyn KvStore) {
    assert_eq!(store.get(b"a").unwrap(), None);
    put(
        store,
        &[
            ("a/2", "two"),
            ("a/1", "one"),
            ("b/1", "other"),
            ("a/3", "three"),
        ],
    );
    assert_eq!(store.get(b"a/2").unwrap(), Some(b"two".to_vec()));
    assert_eq!(
        text(store.last(b"a/", 2).unwrap()),
        ["a/2=two", "a/3=three"]
    );
    assert_eq!(
        text(store.last(b"a/", 9).unwrap()),
        ["a/1=one", "a/2=two", "a/3=three"]
    );
    assert_eq!(store.count(b"a/").unwrap(), 3);
    assert_eq!(store.count(b"c").unwrap(), 0);

    // A removal comes before the puts of its batch.
    let mut batch = Batch::default();
    batch.put("a/1", "again");
    batch.remove("a/1");
    batch.remove("a/2");
    store.apply(batch).unwrap();
    assert_eq!(
        text(store.last(b"", 9).unwrap()),
        ["a/1=again", "a/3=three", "b/1=other"]
    );
}

#[test]
fn memory_conforms() {
    conforms(&MemoryStore::default());
}

#[test]
fn sled_conforms_and_keeps_what_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("views");
    conforms(&SledStore::open(&path).unwrap());
    let (store, quarantined) = SledStore::open_or_begin_anew(&path).unwrap();
    assert_eq!(quarantined, None);
    assert_eq!(store.get(b"a/3").unwrap(), Some(b"three".to_vec()));
}

#[test]
fn what_cannot_be_opened_is_moved_aside_and_begun_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("views");
    for round in 1..=2 {
        // A file where a directory must be stands for every damage.
        if path.is_dir() {
            fs::remove_dir_all(&path).unwrap();
        }
        fs::write(&path, b"not a store").unwrap();
        let (store, quarantined) = SledStore::open_or_begin_anew(&path).unwrap();
        let quarantined = quarantined.expect("it was moved aside");
        assert_eq!(
            quarantined.moved_to,
            dir.path().join(format!("views.damaged-{round}"))
        );
        assert_eq!(fs::read(&quarantined.moved_to).unwrap(), b"not a store");
        put(&store, &[("k", "v")]);
        assert_eq!(store.count(b"").unwrap(), 1);
        drop(store);
    }
}

#[test]
fn damaged_files_never_end_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("views");
    let store = SledStore::open(&path).unwrap();
    for n in 0..2_000 {
        put(
            &store,
            &[(&format!("key {n:05}"), "a value that takes some room")],
        );
    }
    drop(store);
    let files = || {
        let entries = fs::read_dir(&path)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = entries.filter(|path| path.is_file()).collect();
        files.sort();
        files
    };
    for (n, file) in files().into_iter().enumerate() {
        let whole = fs::read(&file).unwrap();
        for damage in 0..4 {
            let mut bytes = whole.clone();
            match damage {
                0 => bytes.clear(),
                1 => bytes.truncate(whole.len() / 2),
                2 => bytes.iter_mut().step_by(97).for_each(|byte| *byte ^= 0xff),
                _ => bytes.fill(0),
            }
            fs::write(&file, &bytes).unwrap();
            let (store, _quarantined) = SledStore::open_or_begin_anew(&path).unwrap();
            put(&store, &[("after", "damage")]);
            assert!(store.count(b"").is_ok(), "file {n}, damage {damage}");
            drop(store);
            fs::write(&file, &whole).unwrap();
        }
    }
}
