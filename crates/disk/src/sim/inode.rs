//! One file of the simulated disk: what a reader sees, and what the platter has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rand::Rng;

/// Unit in which unsynced bytes reach the platter.
pub(super) const PAGE: u64 = 4096;
/// Unit in which a page is torn.
const SECTOR: usize = 512;

type Page = Arc<[u8; PAGE as usize]>;

/// A sparse file: a missing page is zeroes.
#[derive(Clone, Default)]
struct Image {
    len: u64,
    pages: BTreeMap<u64, Page>,
}

impl Image {
    fn page(&self, index: u64) -> Page {
        self.pages
            .get(&index)
            .cloned()
            .unwrap_or_else(|| Arc::new([0; PAGE as usize]))
    }

    fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.pages.retain(|index, _| index * PAGE < len);
            if let Some(last) = self.pages.get_mut(&(len / PAGE)) {
                Arc::make_mut(last)[(len % PAGE) as usize..].fill(0);
            }
        }
        self.len = len;
    }
}

/// What a crash does to unsynced pages, chosen once per file.
enum Fate {
    AllLost,
    AllKept,
    /// Each page on its own: old, new, or torn between the two.
    Each,
}

#[derive(Clone, Default)]
pub(super) struct Inode {
    live: Image,
    durable: Image,
    /// Pages written since they were last synced.
    dirty: BTreeSet<u64>,
    /// End of the space reserved by `allocate`.
    reserved_end: u64,
    /// Names in the live view; 0 once unlinked.
    pub(super) links: u32,
    /// Open handles.
    pub(super) handles: u32,
    /// Syncs that failed: each handle that was open then hears of it at its next one.
    pub(super) failures: u64,
}

impl Inode {
    pub(super) fn len(&self) -> u64 {
        self.live.len
    }

    /// Space taken on the disk, in whole pages.
    pub(super) fn space(&self) -> u64 {
        self.live.len.max(self.reserved_end).div_ceil(PAGE) * PAGE
    }

    pub(super) fn space_with_end(&self, end: u64) -> u64 {
        self.space().max(end.div_ceil(PAGE) * PAGE)
    }

    pub(super) fn reserve(&mut self, end: u64) {
        self.reserved_end = self.reserved_end.max(end);
    }

    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let end = (offset + buf.len() as u64).min(self.live.len);
        let mut at = offset;
        while at < end {
            let start = (at % PAGE) as usize;
            let n = (PAGE - at % PAGE).min(end - at) as usize;
            let to = &mut buf[(at - offset) as usize..][..n];
            match self.live.pages.get(&(at / PAGE)) {
                Some(page) => to.copy_from_slice(&page[start..start + n]),
                None => to.fill(0),
            }
            at += n as u64;
        }
        end.saturating_sub(offset) as usize
    }

    /// Writes to the live view. A page that is dirty already may first be written back as it is,
    /// as a kernel does on its own: a crash can then show any of its versions.
    pub(super) fn write(&mut self, bytes: &[u8], offset: u64, rng: &mut impl Rng) {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let index = at / PAGE;
            let start = (at % PAGE) as usize;
            let n = (PAGE as usize - start).min(bytes.len() - done);
            if !self.dirty.insert(index) && rng.random_bool(0.25) {
                self.persist_page(index);
            }
            let page = self
                .live
                .pages
                .entry(index)
                .or_insert_with(|| Arc::new([0; PAGE as usize]));
            Arc::make_mut(page)[start..start + n].copy_from_slice(&bytes[done..done + n]);
            done += n;
        }
        self.live.len = self.live.len.max(offset + bytes.len() as u64);
    }

    pub(super) fn set_len(&mut self, len: u64) {
        // Pages that the platter still has and the live view no longer: they read as zeroes now,
        // and come back if the change is lost.
        for index in self.durable.pages.keys() {
            if (index + 1) * PAGE > len {
                self.dirty.insert(*index);
            }
        }
        self.live.set_len(len);
        self.reserved_end = self.reserved_end.min(len);
    }

    fn persist_page(&mut self, index: u64) {
        match self.live.pages.get(&index) {
            Some(page) => self.durable.pages.insert(index, Arc::clone(page)),
            None => self.durable.pages.remove(&index),
        };
        if index * PAGE >= self.durable.len {
            // The page is on the platter but the length does not cover it yet.
            return;
        }
        self.durable.len = self.durable.len.max(self.live.len.min((index + 1) * PAGE));
    }

    pub(super) fn sync(&mut self) {
        for index in std::mem::take(&mut self.dirty) {
            self.persist_page(index);
        }
        self.durable.set_len(self.live.len);
    }

    /// A sync that failed: the pages read clean from now on, and are gone at the next crash.
    pub(super) fn fail_sync(&mut self) {
        self.failures += u64::from(!self.dirty.is_empty());
        self.dirty.clear();
    }

    /// A file of these bytes, synced.
    pub(super) fn holding(bytes: &[u8]) -> Inode {
        let mut image = Image::default();
        for (index, piece) in (0..).zip(bytes.chunks(PAGE as usize)) {
            if piece.iter().any(|byte| *byte != 0) {
                let mut page = [0; PAGE as usize];
                page[..piece.len()].copy_from_slice(piece);
                image.pages.insert(index, Arc::new(page));
            }
        }
        image.len = bytes.len() as u64;
        Inode {
            live: image.clone(),
            durable: image,
            ..Inode::default()
        }
    }

    /// Positions and bytes of the file, without its holes.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.live.pages.iter().filter_map(|(index, page)| {
            let left = self.live.len.checked_sub(index * PAGE)?.min(PAGE);
            (left > 0).then(|| (index * PAGE, &page[..left as usize]))
        })
    }

    /// The file after a power cut; `told` hears what became of what was not synced.
    pub(super) fn crashed(&self, rng: &mut impl Rng, told: &mut dyn FnMut(String)) -> Inode {
        let mut image = self.durable.clone();
        let fate = match rng.random_range(0..4) {
            0 => Fate::AllLost,
            1 => Fate::AllKept,
            _ => Fate::Each,
        };
        for &index in &self.dirty {
            let (old, new) = (self.durable.page(index), self.live.page(index));
            let (what, page) = match fate {
                Fate::AllLost => ("lost", None),
                Fate::AllKept => ("kept", Some(new)),
                Fate::Each => match rng.random_range(0..3) {
                    0 => ("lost", None),
                    1 => ("kept", Some(new)),
                    _ => ("torn", Some(torn(&old, &new, rng))),
                },
            };
            told(format!("the page at {} is {what}", index * PAGE));
            if let Some(page) = page {
                image.pages.insert(index, page);
            }
        }
        // The length is metadata: it may survive without the data and the data without it.
        let len = match fate {
            Fate::AllLost => self.durable.len,
            Fate::AllKept => self.live.len,
            Fate::Each if rng.random_bool(0.5) => self.durable.len,
            Fate::Each => {
                let (low, high) = (
                    self.durable.len.min(self.live.len),
                    self.durable.len.max(self.live.len),
                );
                if rng.random_bool(0.5) {
                    self.live.len
                } else {
                    rng.random_range(low..=high)
                }
            }
        };
        if self.durable.len != self.live.len {
            let (synced, live) = (self.durable.len, self.live.len);
            told(format!(
                "of a length of {live}, and {synced} synced, {len} is left"
            ));
        }
        image.len = u64::MAX;
        image.set_len(len);
        Inode {
            live: image.clone(),
            durable: image,
            ..Inode::default()
        }
    }

    /// Changes one byte in both views, as rot on the platter does.
    pub(super) fn corrupt(&mut self, offset: u64, xor: u8) {
        for image in [&mut self.live, &mut self.durable] {
            let mut page = image.page(offset / PAGE);
            Arc::make_mut(&mut page)[(offset % PAGE) as usize] ^= xor;
            image.pages.insert(offset / PAGE, page);
        }
    }
}

/// Each sector of the page old or new.
fn torn(old: &Page, new: &Page, rng: &mut impl Rng) -> Page {
    let mut page = Arc::clone(old);
    let bytes = Arc::make_mut(&mut page);
    for start in (0..PAGE as usize).step_by(SECTOR) {
        if rng.random_bool(0.5) {
            bytes[start..start + SECTOR].copy_from_slice(&new[start..start + SECTOR]);
        }
    }
    page
}
