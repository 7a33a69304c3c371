//! The names of the simulated disk: what a reader sees, what the platter has, and the changes in
//! between, in order.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path};

use rand::Rng;

pub(super) type Ino = u64;
pub(super) const ROOT: Ino = 0;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    File(Ino),
    Dir(Ino),
}

type Tree = BTreeMap<Ino, BTreeMap<String, Entry>>;

/// A change of names that is not durable yet. A rename is one change.
#[derive(Clone, Debug)]
enum Change {
    Link(Ino, String, Entry),
    Unlink(Ino, String),
    Rename(Ino, String, Ino, String, Entry),
}

impl Change {
    fn touches(&self, dir: Ino) -> bool {
        match self {
            Change::Link(d, ..) | Change::Unlink(d, _) => *d == dir,
            Change::Rename(from, _, to, ..) => *from == dir || *to == dir,
        }
    }

    fn apply(&self, tree: &mut Tree) {
        match self {
            Change::Link(dir, name, entry) => {
                tree.entry(*dir).or_default().insert(name.clone(), *entry);
            }
            Change::Unlink(dir, name) => {
                tree.entry(*dir).or_default().remove(name);
            }
            Change::Rename(from_dir, from, to_dir, to, entry) => {
                let names = tree.entry(*from_dir).or_default();
                if names.get(from) == Some(entry) {
                    names.remove(from);
                }
                tree.entry(*to_dir).or_default().insert(to.clone(), *entry);
            }
        }
    }
}

#[derive(Clone, Default)]
pub(super) struct Names {
    live: Tree,
    durable: Tree,
    pending: Vec<Change>,
}

fn not_found(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{}", path.display()))
}

fn not_a_dir(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotADirectory, format!("{}", path.display()))
}

/// The names along a path; a simulated disk has one root, so `/a` and `a` are the same.
pub(super) fn parts(path: &Path) -> io::Result<Vec<String>> {
    path.components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_str().map(str::to_string).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidInput, "the path is not UTF-8")
            })),
            Component::ParentDir => Some(Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the simulated disk knows no `..`",
            ))),
            _ => None,
        })
        .collect()
}

impl Names {
    pub(super) fn get(&self, dir: Ino, name: &str) -> Option<Entry> {
        self.live.get(&dir)?.get(name).copied()
    }

    pub(super) fn entries(&self, dir: Ino) -> impl Iterator<Item = (&String, &Entry)> {
        self.live.get(&dir).into_iter().flatten()
    }

    pub(super) fn lookup(&self, path: &Path) -> io::Result<Option<Entry>> {
        let mut at = Entry::Dir(ROOT);
        for name in parts(path)? {
            let Entry::Dir(dir) = at else {
                return Ok(None);
            };
            match self.get(dir, &name) {
                Some(entry) => at = entry,
                None => return Ok(None),
            }
        }
        Ok(Some(at))
    }

    pub(super) fn dir(&self, path: &Path) -> io::Result<Ino> {
        match self.lookup(path)? {
            Some(Entry::Dir(dir)) => Ok(dir),
            Some(Entry::File(_)) => Err(not_a_dir(path)),
            None => Err(not_found(path)),
        }
    }

    /// The directory that holds `path`, and its name there.
    pub(super) fn parent(&self, path: &Path) -> io::Result<(Ino, String)> {
        let name = parts(path)?
            .pop()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the root has no name"))?;
        let dir = self.dir(path.parent().unwrap_or(Path::new("")))?;
        Ok((dir, name))
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.live);
        self.pending.push(change);
    }

    pub(super) fn link(&mut self, dir: Ino, name: &str, entry: Entry) {
        self.change(Change::Link(dir, name.to_string(), entry));
    }

    pub(super) fn unlink(&mut self, dir: Ino, name: &str) {
        self.change(Change::Unlink(dir, name.to_string()));
    }

    pub(super) fn rename(&mut self, from: (Ino, String), to: (Ino, String), entry: Entry) {
        self.change(Change::Rename(from.0, from.1, to.0, to.1, entry));
    }

    pub(super) fn sync(&mut self, dir: Ino) {
        let durable = &mut self.durable;
        self.pending.retain(|change| {
            let synced = change.touches(dir);
            if synced {
                change.apply(durable);
            }
            !synced
        });
    }

    /// All names, in the order in which they changed.
    pub(super) fn sync_all(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            change.apply(&mut self.durable);
        }
    }

    /// The file of every name below the root, once per name.
    pub(super) fn live_files(&self) -> Vec<Ino> {
        let mut files = Vec::new();
        let mut dirs = vec![ROOT];
        while let Some(dir) = dirs.pop() {
            for (_, entry) in self.entries(dir) {
                match entry {
                    Entry::File(ino) => files.push(*ino),
                    Entry::Dir(below) => dirs.push(*below),
                }
            }
        }
        files
    }

    /// Whether some view, or a crash, can still reach the file.
    pub(super) fn reachable(&self, ino: Ino) -> bool {
        let file = Entry::File(ino);
        let held = |tree: &Tree| {
            tree.values()
                .any(|names| names.values().any(|e| *e == file))
        };
        held(&self.live)
            || held(&self.durable)
            || self.pending.iter().any(|change| match change {
                Change::Link(_, _, e) | Change::Rename(_, _, _, _, e) => *e == file,
                Change::Unlink(..) => false,
            })
    }

    /// The names after a power cut: those on the platter, and of the pending changes a prefix (a
    /// journalling file system) or any subset (one that is not).
    /// `told` hears which.
    pub(super) fn crashed(&self, rng: &mut impl Rng, told: &mut dyn FnMut(String)) -> Names {
        let mut tree = self.durable.clone();
        let ordered = rng.random_bool(0.5);
        let keep = rng.random_range(0..=self.pending.len());
        for (i, change) in self.pending.iter().enumerate() {
            let kept = if ordered {
                i < keep
            } else {
                rng.random_bool(0.5)
            };
            told(format!(
                "the change of names {change:?} is {}",
                if kept { "kept" } else { "lost" }
            ));
            if kept {
                change.apply(&mut tree);
            }
        }
        Names {
            live: tree.clone(),
            durable: tree,
            pending: Vec::new(),
        }
    }
}
