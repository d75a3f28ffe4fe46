//! Reading plans.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::physical_plan::{ExecutionPlan, displayable};

/// Operators that stand for a stage in an adaptive plan: an exchange, and the root.
const EXCHANGE: &str = "ExchangeExec";
const ROOT: &str = "AdaptiveDatafusionExec";

/// What an exchange or the root says that is about its stage, not about the plan.
const STAGE_NOTES: [&str; 5] = ["stage_id", "stage_resolved", "coalesce", "range_repartition_cuts", "is_final"];

/// A plan at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlanTree {
    /// The operator's name.
    pub(super) name: String,
    /// The line that the operator prints.
    pub(super) line: String,
    pub(super) children: Vec<PlanTree>,
}

impl PlanTree {
    /// Reads a plan.
    pub(crate) fn of(plan: &dyn ExecutionPlan) -> Self {
        Self {
            name: plan.name().to_owned(),
            line: line(plan),
            children: plan.children().into_iter().map(|child| Self::of(child.as_ref())).collect(),
        }
    }

    /// Reads what one stage of a plan runs: down to the exchanges that it reads from.
    pub(crate) fn of_stage(input: &dyn ExecutionPlan) -> Self {
        let mut tree = Self { name: input.name().to_owned(), line: line(input), children: Vec::new() };
        if !tree.is_exchange() {
            tree.children = input.children().into_iter().map(|child| Self::of_stage(child.as_ref())).collect();
        }
        tree
    }

    /// Whether both are the same plan, whatever has become of their stages.
    pub(crate) fn same_plan(&self, other: &Self) -> bool {
        self.plan_line() == other.plan_line()
            && self.children.len() == other.children.len()
            && self.children.iter().zip(&other.children).all(|(child, other)| child.same_plan(other))
    }

    pub(super) fn is_exchange(&self) -> bool {
        self.name == EXCHANGE
    }

    /// The value of `name=value` in the operator's line.
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        attribute(&self.line, name)
    }

    /// The line without what it says about stages.
    pub(super) fn plan_line(&self) -> String {
        let mut line = self.line.clone();
        if matches!(self.name.as_str(), EXCHANGE | ROOT) {
            for note in STAGE_NOTES {
                if let Some(value) = attribute(&line, note) {
                    line = line.replacen(&format!("{note}={value}"), "", 1);
                }
            }
            line = line.split(',').map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
        }
        line
    }

    /// This operator and all below it, parents first.
    pub(super) fn walk<'a>(&'a self, visit: &mut impl FnMut(&'a Self)) {
        visit(self);
        self.children.iter().for_each(|child| child.walk(visit));
    }
}

fn line(plan: &dyn ExecutionPlan) -> String {
    displayable(plan).one_line().to_string().trim_end().to_owned()
}

/// The value of `name=value` in an operator's line: up to the next comma that is not inside brackets.
fn attribute<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let start = line
        .match_indices(name)
        .find(|(at, _)| {
            let starts = *at == 0 || matches!(line.as_bytes()[at - 1], b' ' | b',');
            starts && line[at + name.len()..].starts_with('=')
        })
        .map(|(at, _)| at + name.len() + 1)?;
    let rest = &line[start..];
    let mut depth = 0_i32;
    let end = rest.find(|c| {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        c == ',' && depth <= 0
    });
    Some(rest[..end.unwrap_or(rest.len())].trim())
}

/// The stage that an operator stands for, and whether that stage is done; `None` for operators that stand for none.
fn stage_of(plan: &dyn ExecutionPlan) -> Option<(usize, bool)> {
    if !matches!(plan.name(), EXCHANGE | ROOT) {
        return None;
    }
    let line = line(plan);
    let stage_id = attribute(&line, "stage_id")?.parse().ok()?;
    Some((stage_id, attribute(&line, "stage_resolved") == Some("true")))
}

/// The stages that an adaptive plan waits for: when one of them completes, the planner plans anew.
pub(crate) fn unresolved_stages(plan: &dyn ExecutionPlan) -> HashSet<usize> {
    fn add(plan: &dyn ExecutionPlan, stages: &mut HashSet<usize>) {
        if let Some((stage_id, false)) = stage_of(plan) {
            stages.insert(stage_id);
        }
        plan.children().into_iter().for_each(|child| add(child.as_ref(), stages));
    }
    let mut stages = HashSet::new();
    add(plan, &mut stages);
    stages
}

/// The plan below the exchange, or root, that stands for a stage. Not rendered: the stage's notes may change, the plan
/// below does not.
pub(crate) fn subtree_of_stage(plan: &Arc<dyn ExecutionPlan>, stage_id: usize) -> Option<Arc<dyn ExecutionPlan>> {
    let children = plan.children();
    if stage_of(plan.as_ref()).is_some_and(|(id, _)| id == stage_id) {
        return children.first().map(|input| Arc::clone(input));
    }
    children.into_iter().find_map(|child| subtree_of_stage(child, stage_id))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A tree from its text: one operator a line, two spaces of indent a level.
    pub(in crate::plan) fn parse(text: &str) -> PlanTree {
        let mut stack: Vec<(usize, PlanTree)> = Vec::new();
        for row in text.lines().filter(|row| !row.trim().is_empty()) {
            let depth = (row.len() - row.trim_start().len()) / 2;
            let line = row.trim().to_owned();
            let name = line.split([':', ' ']).next().unwrap_or_default().to_owned();
            while stack.last().is_some_and(|(last, _)| *last >= depth) {
                fold(&mut stack);
            }
            stack.push((depth, PlanTree { name, line, children: Vec::new() }));
        }
        while stack.len() > 1 {
            fold(&mut stack);
        }
        stack.pop().unwrap().1
    }

    fn fold(stack: &mut Vec<(usize, PlanTree)>) {
        let (_, child) = stack.pop().unwrap();
        stack.last_mut().unwrap().1.children.push(child);
    }

    #[test]
    fn attributes_end_at_their_comma() {
        let line = "ExchangeExec: partitioning=Hash([a@0, b@1], 4), plan_id=7, stage_id=pending, stage_resolved=false";
        assert_eq!(attribute(line, "partitioning"), Some("Hash([a@0, b@1], 4)"));
        assert_eq!(attribute(line, "plan_id"), Some("7"));
        assert_eq!(attribute(line, "stage_resolved"), Some("false"));
        assert_eq!(attribute(line, "id"), None);
        assert_eq!(attribute(line, "resolved"), None);
    }

    #[test]
    fn stage_notes_are_no_part_of_the_plan() {
        let before = parse(
            "ExchangeExec: partitioning=None, plan_id=1, stage_id=pending, stage_resolved=false\n  DataSourceExec: file_groups={1 group}",
        );
        let after = parse(
            "ExchangeExec: partitioning=None, plan_id=1, stage_id=3, stage_resolved=true, coalesce=1 of 4\n  DataSourceExec: file_groups={1 group}",
        );
        assert!(before.same_plan(&after));
        let broadcast = parse(
            "ExchangeExec: partitioning=None, plan_id=1, stage_id=3, stage_resolved=true, broadcast=true\n  DataSourceExec: file_groups={1 group}",
        );
        assert!(!before.same_plan(&broadcast));
    }
}
