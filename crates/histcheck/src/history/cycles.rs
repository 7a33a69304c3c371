//! Check 5 (G1c): no information comes from what came later. A graph over transactions, records sent alone and polls;
//! edges from writer to reader, from one step of a client to its next, and from what had ended to what began afterwards.
//! A cycle of them cannot be.
//!
//! For the last kind of edge there is a line of moments, one per end of a step: a step leads to the moment of its end, a
//! moment to the next, and the last moment before a step's begin to the step. So there are as many edges as steps.
//!
//! Edges between writers of one offset after another (ww) are left out: Kafka lets transactions' writes interleave.

use super::model::{Model, Step};
use super::outcome::Outcome;
use super::verdict::{Check, Verdict};

struct Node {
    name: String,
    from: u64,
    /// `None`: its end is not known.
    to: Option<u64>,
}

pub(crate) fn check(model: &Model, verdict: &mut Verdict) {
    let (mut nodes, mut edges): (Vec<Node>, Vec<(usize, usize)>) = (Vec::new(), Vec::new());
    let mut of_txn: Vec<Option<usize>> = vec![None; model.txns.len()];
    let mut of_value: Vec<Option<usize>> = vec![None; model.values.len()];
    let mut polls: Vec<(usize, usize)> = Vec::new();
    for client in &model.clients {
        let mut last = None;
        for step in &client.steps {
            let node = match *step {
                Step::Txn(at) if model.txns[at].outcome == Outcome::Ok => {
                    let txn = &model.txns[at];
                    of_txn[at] = Some(nodes.len());
                    Node {
                        name: format!("transaction {} of {}", txn.id, client.name),
                        from: txn.begun,
                        to: txn.committed().map(|(_, to)| to),
                    }
                }
                Step::Send(at) if model.values[at].txn.is_none() => {
                    let value = &model.values[at];
                    of_value[at] = Some(nodes.len());
                    // A client sends the next before the last is answered: there is no order of steps here.
                    nodes.push(Node {
                        name: model.name(value.id),
                        from: value.at,
                        to: value.sent_at.filter(|_| value.answer == Outcome::Ok),
                    });
                    continue;
                }
                Step::Poll(at)
                    if model.polls[at].read_committed && !model.polls[at].records.is_empty() =>
                {
                    let poll = &model.polls[at];
                    polls.push((nodes.len(), at));
                    Node {
                        name: format!("a poll of {}", client.name),
                        from: poll.from,
                        to: Some(poll.to),
                    }
                }
                _ => continue,
            };
            edges.extend(last.map(|last| (last, nodes.len())));
            last = Some(nodes.len());
            nodes.push(node);
        }
    }
    for (node, poll) in polls {
        let mut writers: Vec<usize> = Vec::new();
        for (_, _, id) in &model.polls[poll].records {
            let Some(ix) = model.value_ix(*id) else {
                continue;
            };
            writers.extend(match model.values[ix].txn {
                Some(txn) => of_txn[txn],
                None => of_value[ix],
            });
        }
        writers.sort_unstable();
        writers.dedup();
        edges.extend(writers.into_iter().map(|writer| (writer, node)));
    }
    let steps = nodes.len();
    let total = add_moments(&nodes, &mut edges);
    for component in cycles(total, &edges) {
        verdict.find(Check::Cycle, || {
            let names = component.iter().filter(|&&node| node < steps);
            let names: Vec<&str> = names
                .take(6)
                .map(|&node| nodes[node].name.as_str())
                .collect();
            format!(
                "each of these comes before the others: {}",
                names.join("; ")
            )
        });
    }
}

/// Adds the line of moments behind the nodes; answers how many there are then.
fn add_moments(nodes: &[Node], edges: &mut Vec<(usize, usize)>) -> usize {
    let mut ends: Vec<(u64, usize)> = (nodes.iter().enumerate())
        .filter_map(|(at, node)| Some((node.to?, at)))
        .collect();
    ends.sort_unstable();
    let first = nodes.len();
    for (at, (_, node)) in ends.iter().enumerate() {
        edges.push((*node, first + at));
        if at > 0 {
            edges.push((first + at - 1, first + at));
        }
    }
    for (at, node) in nodes.iter().enumerate() {
        let before = ends.partition_point(|(end, _)| *end < node.from);
        if before > 0 {
            edges.push((first + before - 1, at));
        }
    }
    first + ends.len()
}

/// The strongly connected components of more than one node (Tarjan), without recursion.
fn cycles(nodes: usize, edges: &[(usize, usize)]) -> Vec<Vec<usize>> {
    let mut begin = vec![0_usize; nodes + 1];
    for (from, _) in edges {
        begin[from + 1] += 1;
    }
    for at in 0..nodes {
        begin[at + 1] += begin[at];
    }
    let (mut targets, mut fill) = (vec![0_usize; edges.len()], begin.clone());
    for (from, to) in edges {
        targets[fill[*from]] = *to;
        fill[*from] += 1;
    }
    const UNSEEN: usize = usize::MAX;
    let (mut index, mut low) = (vec![UNSEEN; nodes], vec![0_usize; nodes]);
    let mut on_stack = vec![false; nodes];
    let (mut stack, mut calls, mut next) = (Vec::new(), Vec::<(usize, usize)>::new(), 0);
    let mut found = Vec::new();
    for root in 0..nodes {
        if index[root] != UNSEEN {
            continue;
        }
        calls.push((root, begin[root]));
        while let Some(&mut (node, ref mut edge)) = calls.last_mut() {
            if index[node] == UNSEEN {
                index[node] = next;
                low[node] = next;
                next += 1;
                stack.push(node);
                on_stack[node] = true;
            }
            if *edge < begin[node + 1] {
                let target = targets[*edge];
                *edge += 1;
                if index[target] == UNSEEN {
                    calls.push((target, begin[target]));
                } else if on_stack[target] {
                    low[node] = low[node].min(index[target]);
                }
                continue;
            }
            calls.pop();
            if let Some((caller, _)) = calls.last() {
                low[*caller] = low[*caller].min(low[node]);
            }
            if low[node] == index[node] {
                let mut component = Vec::new();
                while let Some(member) = stack.pop() {
                    on_stack[member] = false;
                    component.push(member);
                    if member == node {
                        break;
                    }
                }
                if component.len() > 1 {
                    found.push(component);
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::cycles;

    #[test]
    fn components_are_found_and_lines_are_none() {
        assert!(cycles(4, &[(0, 1), (1, 2), (0, 3), (3, 2)]).is_empty());
        let mut found = cycles(6, &[(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 3), (4, 5)]);
        found
            .iter_mut()
            .for_each(|component| component.sort_unstable());
        found.sort();
        assert_eq!(found, [vec![0, 1, 2], vec![3, 4]]);
    }
}
