//! What is different between two plans of a job, in the terms of an adaptive planner.

use std::collections::BTreeMap;

use super::tree::PlanTree;
use crate::event::PlanChange;

/// A join that waits for the sizes of its inputs.
const UNDECIDED_JOIN: &str = "DynamicJoinSelectionExec";

/// Distributes rows among the partitions of one stage.
const REPARTITION: &str = "RepartitionExec";

/// Operators that yield nothing, or one row of nothing.
const EMPTY: [&str; 2] = ["EmptyExec", "PlaceholderRowExec"];

/// What a replan did.
pub(crate) fn changes(before: &PlanTree, after: &PlanTree) -> Vec<PlanChange> {
    let mut changes = Vec::new();
    let mut comparison = Comparison { before: exchanges(before), after: exchanges(after), changes: &mut changes };
    comparison.compare(before, after);
    comparison.compare_exchanges();
    changes
}

/// The exchanges of a plan by the planner's number, which stays with them across rewrites.
fn exchanges(plan: &PlanTree) -> BTreeMap<u32, &PlanTree> {
    let mut exchanges = BTreeMap::new();
    plan.walk(&mut |node| {
        if let Some(plan_id) = plan_id(node) {
            exchanges.insert(plan_id, node);
        }
    });
    exchanges
}

fn plan_id(node: &PlanTree) -> Option<u32> {
    if node.is_exchange() { node.attribute("plan_id")?.parse().ok() } else { None }
}

struct Comparison<'a> {
    before: BTreeMap<u32, &'a PlanTree>,
    after: BTreeMap<u32, &'a PlanTree>,
    changes: &'a mut Vec<PlanChange>,
}

impl<'a> Comparison<'a> {
    fn compare(&mut self, before: &'a PlanTree, after: &'a PlanTree) {
        // An exchange that came or went is told by its number; here it is stepped over.
        match (plan_id(before), plan_id(after)) {
            (Some(id), other) if Some(id) != other && !self.after.contains_key(&id) => {
                if let [input] = &before.children[..] {
                    return self.compare(input, after);
                }
            }
            (other, Some(id)) if Some(id) != other && !self.before.contains_key(&id) => {
                if let [input] = &after.children[..] {
                    // It often takes the place of a repartitioning inside a stage.
                    let before = before.children.first().filter(|_| before.name == REPARTITION).unwrap_or(before);
                    return self.compare(before, input);
                }
            }
            _ => {}
        }
        if is_empty(after) && !is_empty(before) {
            return self.pruned(before, after);
        }
        match (is_join(before), is_join(after)) {
            (true, true) => self.joins(before, after),
            (true, false) if after.children.len() == 1 => return self.inserted(before, after),
            _ if before.name != after.name => return self.other(before, after),
            _ if !before.is_exchange() && before.plan_line() != after.plan_line() => {
                self.changes
                    .push(PlanChange::Other { before: Some(before.line.clone()), after: Some(after.line.clone()) });
            }
            _ => {}
        }
        self.children(before, after);
    }

    /// The sides of a join may have been swapped: each input is compared with the one that looks more like it.
    fn children(&mut self, before: &'a PlanTree, after: &'a PlanTree) {
        match (&before.children[..], &after.children[..]) {
            ([left, right], [new_left, new_right]) if is_swapped(before, after) => {
                self.compare(left, new_right);
                self.compare(right, new_left);
            }
            (before, after) if before.len() == after.len() => {
                for (before, after) in before.iter().zip(after) {
                    self.compare(before, after);
                }
            }
            (before, after) => {
                self.changes.extend(before.iter().map(gone));
                self.changes.extend(after.iter().map(come));
            }
        }
    }

    fn joins(&mut self, before: &PlanTree, after: &PlanTree) {
        let text =
            |node: &PlanTree, name| node.attribute(name).map(|text| text.split(' ').next().unwrap_or(text).to_owned());
        let join_type = |node: &PlanTree| text(node, "join_type").unwrap_or_default();
        let (join_type_before, join_type_after) = (join_type(before), join_type(after));
        let swapped = is_swapped(before, after);
        let undecided = (before.name == UNDECIDED_JOIN, after.name == UNDECIDED_JOIN);
        match undecided {
            (true, true) => {
                if before.line != after.line {
                    self.changes
                        .push(PlanChange::Other { before: Some(before.line.clone()), after: Some(after.line.clone()) });
                }
            }
            (true, false) => self.changes.push(PlanChange::JoinResolved {
                operator: after.name.clone(),
                mode: text(after, "mode"),
                join_type_before,
                join_type_after,
                swapped,
            }),
            _ => {
                let (mode_before, mode_after) = (text(before, "mode"), text(after, "mode"));
                let changed =
                    (&before.name, &mode_before, &join_type_before) != (&after.name, &mode_after, &join_type_after);
                if changed || swapped {
                    self.changes.push(PlanChange::JoinChanged {
                        operator_before: before.name.clone(),
                        operator_after: after.name.clone(),
                        mode_before,
                        mode_after,
                        join_type_before,
                        join_type_after,
                        swapped,
                    });
                } else if before.line != after.line {
                    self.changes
                        .push(PlanChange::Other { before: Some(before.line.clone()), after: Some(after.line.clone()) });
                }
            }
        }
    }

    fn pruned(&mut self, before: &'a PlanTree, after: &PlanTree) {
        // What was below went with it.
        before.walk(&mut |node| {
            if let Some(plan_id) = plan_id(node) {
                self.before.remove(&plan_id);
            }
        });
        self.changes.push(PlanChange::Pruned { operator: before.name.clone(), replaced_by: after.name.clone() });
    }

    /// An operator was put on top of a join, to put back in order what the swap of its sides turned around.
    fn inserted(&mut self, before: &'a PlanTree, after: &'a PlanTree) {
        self.changes.push(come(after));
        self.compare(before, &after.children[0]);
    }

    fn other(&mut self, before: &'a PlanTree, after: &'a PlanTree) {
        // Operators that came or went above the same rest.
        if let Some(same) = below(after, before) {
            self.changes.extend(down_to(after, same).map(come));
            return self.compare(before, same);
        }
        if let Some(same) = below(before, after) {
            self.changes.extend(down_to(before, same).map(gone));
            return self.compare(same, after);
        }
        self.changes.push(PlanChange::Other { before: Some(before.line.clone()), after: Some(after.line.clone()) });
        if before.children.len() == after.children.len() {
            self.children(before, after);
        }
    }

    fn compare_exchanges(&mut self) {
        for (&plan_id, before) in &self.before {
            let Some(after) = self.after.get(&plan_id) else {
                self.changes.push(PlanChange::ExchangeDropped { plan_id, stage_id: stage_id(before) });
                continue;
            };
            let stage_id = stage_id(after);
            match (is_broadcast(before), is_broadcast(after)) {
                (false, true) => self.changes.push(PlanChange::BroadcastChosen { plan_id, stage_id }),
                (true, false) => self.changes.push(PlanChange::BroadcastDemoted { plan_id, stage_id }),
                _ => {}
            }
            if before.attribute("coalesce") != after.attribute("coalesce") {
                self.changes.extend(coalesced(after));
            }
        }
        for (&plan_id, after) in &self.after {
            if !self.before.contains_key(&plan_id) {
                let partitioning = after.attribute("partitioning").unwrap_or("None").to_owned();
                self.changes.push(PlanChange::ExchangeAdded { plan_id, partitioning });
                if is_broadcast(after) {
                    self.changes.push(PlanChange::BroadcastChosen { plan_id, stage_id: stage_id(after) });
                }
                self.changes.extend(coalesced(after));
            }
        }
    }
}

/// The first operator below `node`, through operators with one input, that may be what became of `other`. Any join may
/// become any other, and joins take projections in.
fn below<'a>(node: &'a PlanTree, other: &PlanTree) -> Option<&'a PlanTree> {
    let [input] = &node.children[..] else { return None };
    // An exchange is known by its number, and told by it.
    if input.is_exchange() {
        return None;
    }
    let same = input.name == other.name || (is_join(input) && is_join(other));
    if same { Some(input) } else { below(input, other) }
}

/// The operators from `node` to the one above `end`.
fn down_to<'a>(node: &'a PlanTree, end: &'a PlanTree) -> impl Iterator<Item = &'a PlanTree> {
    std::iter::successors(Some(node), |node| node.children.first()).take_while(move |node| !std::ptr::eq(*node, end))
}

fn gone(node: &PlanTree) -> PlanChange {
    PlanChange::Other { before: Some(node.line.clone()), after: None }
}

fn come(node: &PlanTree) -> PlanChange {
    PlanChange::Other { before: None, after: Some(node.line.clone()) }
}

fn is_empty(node: &PlanTree) -> bool {
    EMPTY.contains(&node.name.as_str())
}

fn is_join(node: &PlanTree) -> bool {
    node.name == UNDECIDED_JOIN || node.name.ends_with("JoinExec")
}

fn is_broadcast(exchange: &PlanTree) -> bool {
    exchange.attribute("broadcast") == Some("true")
}

fn stage_id(exchange: &PlanTree) -> Option<u32> {
    exchange.attribute("stage_id")?.parse().ok()
}

fn coalesced(exchange: &PlanTree) -> Option<PlanChange> {
    let (partitions, of) = exchange.attribute("coalesce")?.split_once(" of ")?;
    Some(PlanChange::Coalesced {
        stage_id: stage_id(exchange),
        partitions: partitions.parse().ok()?,
        of: of.parse().ok()?,
    })
}

/// Whether the two inputs of an operator changed places.
fn is_swapped(before: &PlanTree, after: &PlanTree) -> bool {
    match (&before.children[..], &after.children[..]) {
        ([left, right], [new_left, new_right]) => {
            alike(left, new_right) + alike(right, new_left) > alike(left, new_left) + alike(right, new_right)
        }
        _ => false,
    }
}

/// How many leaves and exchanges two plans have in common.
fn alike(one: &PlanTree, other: &PlanTree) -> usize {
    let marks = |plan: &PlanTree| {
        let mut marks = Vec::new();
        plan.walk(&mut |node| {
            if node.children.is_empty() || node.is_exchange() {
                marks.push(plan_id(node).map_or_else(|| node.line.clone(), |id| format!("exchange {id}")));
            }
        });
        marks
    };
    let others = marks(other);
    marks(one).iter().filter(|mark| others.contains(mark)).count()
}

#[cfg(test)]
mod tests {
    use super::super::tree::tests::parse;
    use super::*;

    fn between(before: &str, after: &str) -> Vec<PlanChange> {
        changes(&parse(before), &parse(after))
    }

    const SCAN_A: &str = "DataSourceExec: file_groups={a}";
    const SCAN_B: &str = "DataSourceExec: file_groups={b}";

    fn exchange(plan_id: u32, notes: &str) -> String {
        format!("ExchangeExec: partitioning=Hash([k@0], 4), plan_id={plan_id}, {notes}")
    }

    #[test]
    fn a_stage_that_completes_changes_nothing() {
        let plan = |notes| {
            format!(
                "AdaptiveDatafusionExec: is_final=false, plan_id=9, stage_id=pending, stage_resolved=false\n  {}\n    {SCAN_A}",
                exchange(1, notes)
            )
        };
        assert_eq!(between(&plan("stage_id=0, stage_resolved=false"), &plan("stage_id=0, stage_resolved=true")), []);
    }

    #[test]
    fn a_join_that_is_decided_and_swapped() {
        let (a, b) = (exchange(1, "stage_id=0, stage_resolved=true"), exchange(2, "stage_id=1, stage_resolved=true"));
        let before = format!(
            "DynamicJoinSelectionExec: plan_id=3, join_type=Left, on=[(k@0, k@0)] repartitioned=true\n  {a}\n    {SCAN_A}\n  {b}\n    {SCAN_B}"
        );
        let after = format!(
            "ProjectionExec: expr=[k@1, k@0]\n  HashJoinExec: mode=CollectLeft, join_type=Right, on=[(k@0, k@0)]\n    {b}\n      {SCAN_B}\n    {a}\n      {SCAN_A}"
        );
        assert_eq!(
            between(&before, &after),
            [
                PlanChange::Other { before: None, after: Some("ProjectionExec: expr=[k@1, k@0]".into()) },
                PlanChange::JoinResolved {
                    operator: "HashJoinExec".into(),
                    mode: Some("CollectLeft".into()),
                    join_type_before: "Left".into(),
                    join_type_after: "Right".into(),
                    swapped: true,
                },
            ]
        );
    }

    #[test]
    fn exchanges_that_come_go_and_change() {
        let before =
            format!("ProjectionExec: expr=[k]\n  {}\n    {SCAN_A}", exchange(1, "stage_id=0, stage_resolved=false"));
        let dropped = format!("ProjectionExec: expr=[k]\n  {SCAN_A}");
        assert_eq!(between(&before, &dropped), [PlanChange::ExchangeDropped { plan_id: 1, stage_id: Some(0) }]);
        assert_eq!(
            between(&dropped, &before),
            [PlanChange::ExchangeAdded { plan_id: 1, partitioning: "Hash([k@0], 4)".into() }]
        );
        let changed = format!(
            "ProjectionExec: expr=[k]\n  {}\n    {SCAN_A}",
            exchange(1, "stage_id=0, stage_resolved=true, coalesce=2 of 4, broadcast=true")
        );
        assert_eq!(
            between(&before, &changed),
            [
                PlanChange::BroadcastChosen { plan_id: 1, stage_id: Some(0) },
                PlanChange::Coalesced { stage_id: Some(0), partitions: 2, of: 4 },
            ]
        );
        let demoted = PlanChange::BroadcastDemoted { plan_id: 1, stage_id: Some(0) };
        assert!(between(&changed, &before).contains(&demoted));
    }

    #[test]
    fn what_yields_nothing_is_cut_off_with_its_exchanges() {
        let before = format!(
            "AggregateExec: mode=Final\n  HashJoinExec: mode=Partitioned, join_type=Inner\n    {}\n      {SCAN_A}\n    {}\n      {SCAN_B}",
            exchange(1, "stage_id=0, stage_resolved=true"),
            exchange(2, "stage_id=1, stage_resolved=false")
        );
        let after = "AggregateExec: mode=Final\n  EmptyExec";
        assert_eq!(
            between(&before, after),
            [PlanChange::Pruned { operator: "HashJoinExec".into(), replaced_by: "EmptyExec".into() }]
        );
    }

    #[test]
    fn what_has_no_name_is_told_by_its_lines() {
        assert_eq!(
            between("FilterExec: a > 1\n  EmptyExec", "FilterExec: a > 2\n  EmptyExec"),
            [PlanChange::Other { before: Some("FilterExec: a > 1".into()), after: Some("FilterExec: a > 2".into()) }]
        );
        assert_eq!(
            between("SortExec: a\n  FilterExec: b\n    X", "FilterExec: b\n  X"),
            [PlanChange::Other { before: Some("SortExec: a".into()), after: None }]
        );
    }
}
