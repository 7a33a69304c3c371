//! Transactions of several producers over the same partitions.

use crate::common::{Producer, World};

#[test]
fn m9_latest_is_the_last_stable_offset() {
    let mut w = World::new();
    w.create_topic("t", 1);
    let plain = Producer::plain();
    let mut p = Producer::classic(&mut w, "tx1");
    plain.send(&mut w, "t", 0, -1, &["p0"]).unwrap();
    p.add(&mut w, &[("t", 0)]);
    p.send(&mut w, "t", 0, 0, &["x1"]).unwrap();
    plain.send(&mut w, "t", 0, -1, &["p2"]).unwrap();
    assert_eq!(w.ends("t", 0), (1, 3));
    assert_eq!(w.committed("t", 0), ["p0"]);
    p.end(&mut w, true).unwrap();
    assert_eq!(w.ends("t", 0), (4, 4));
    assert_eq!(w.committed("t", 0), ["p0", "x1", "p2"]);
}

#[test]
fn m11_interleaved_one_aborts_one_commits() {
    let mut w = World::new();
    w.create_topic("t", 1);
    let mut a = Producer::classic(&mut w, "a");
    let mut b = Producer::classic(&mut w, "b");
    a.add(&mut w, &[("t", 0)]);
    b.add(&mut w, &[("t", 0)]);
    a.send(&mut w, "t", 0, 0, &["a1"]).unwrap();
    b.send(&mut w, "t", 0, 0, &["b1"]).unwrap();
    a.send(&mut w, "t", 0, 1, &["a2"]).unwrap();
    a.end(&mut w, false).unwrap();
    assert_eq!(w.ends("t", 0), (1, 4), "b holds it at its own first offset");
    b.end(&mut w, true).unwrap();
    assert_eq!(w.committed("t", 0), ["b1"]);
    assert_eq!(w.aborted("t", 0), [(a.producer_id.0, 0, 3)]);
    w.restart();
    assert_eq!(w.ends("t", 0), (5, 5));
}

#[test]
fn the_last_stable_offset_moves_past_the_first_that_ends() {
    let mut w = World::new();
    w.create_topic("t", 1);
    let mut first = Producer::classic(&mut w, "first");
    let mut second = Producer::classic(&mut w, "second");
    for p in [&first, &second] {
        p.add(&mut w, &[("t", 0)]);
        p.send(&mut w, "t", 0, 0, &["v"]).unwrap();
    }
    // The one that began later ends first: nothing moves, an older one is open.
    second.end(&mut w, true).unwrap();
    assert_eq!(w.ends("t", 0), (0, 3));
    second.add(&mut w, &[("t", 0)]);
    second.send(&mut w, "t", 0, 1, &["w"]).unwrap();
    first.end(&mut w, true).unwrap();
    assert_eq!(w.ends("t", 0), (3, 5), "up to what second has open now");
    second.end(&mut w, false).unwrap();
    assert_eq!(w.ends("t", 0), (6, 6));
    assert_eq!(w.committed("t", 0), ["v", "v"]);
}

#[test]
fn p14_all_parts_settle_at_one_tick_but_where_another_is_open() {
    let mut w = World::new();
    w.create_topic("t", 8);
    let partitions: Vec<(&str, i32)> = (0..8).map(|p| ("t", p)).collect();
    let other = Producer::classic(&mut w, "other");
    other.add(&mut w, &[("t", 3)]);
    other.send(&mut w, "t", 3, 0, &["held"]).unwrap();
    let mut p = Producer::classic(&mut w, "tx1");
    p.add(&mut w, &partitions);
    for (_, partition) in &partitions {
        p.send(&mut w, "t", *partition, 0, &["v"]).unwrap();
    }
    let before = w.records.len();
    p.end(&mut w, true).unwrap();
    assert_eq!(w.records.len(), before + 1);
    for partition in 0..8 {
        let expected = if partition == 3 { (0, 3) } else { (2, 2) };
        assert_eq!(w.ends("t", partition), expected);
    }
}
