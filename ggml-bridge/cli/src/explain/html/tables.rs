//! Operations and kernels.

use crate::explain::operation::Operation;
use crate::explain::ordinary_run::OrdinaryRun;
use crate::explain::report::Pass;
use aie_emulator::markup::Markup;
use std::fmt::Display;

fn table(page: &mut Markup, header: &[&str], rows: impl FnOnce(&mut Markup)) {
    page.element("div", &[("class", &"scroll")], |page| {
        page.element("table", &[], |page| {
            page.element("thead", &[], |page| {
                page.element("tr", &[], |row| header.iter().for_each(|title| row.leaf("th", &[], title)));
            });
            page.element("tbody", &[], rows);
        });
    });
}

fn number(row: &mut Markup, what: &str, value: &dyn Display) {
    row.leaf("td", &[("class", &"n"), ("data-of", &what)], value);
}

/// A row for each operation and shape.
pub(super) fn operations(page: &mut Markup, pass: &Pass) {
    let header =
        ["operation", "kernel", "array", "host", "bytes", "multiply-accumulates", "predicted ms", "where, and why"];
    table(page, &header, |page| {
        for operation in &pass.operations {
            page.element("tr", &[("class", &"operation")], |row| {
                row.leaf("td", &[], &operation.op);
                row.leaf("td", &[("class", &"name")], &operation.shape);
                number(row, "array", &operation.array);
                number(row, "host", &operation.host);
                number(row, "bytes", &operation.bytes);
                number(row, "macs", &operation.macs);
                let predicted = operation.predicted_ns.map_or_else(String::new, |ns| format!("{:.3}", ns / 1e6));
                number(row, "predicted", &predicted);
                row.leaf("td", &[], &place(operation));
            });
        }
    });
}

fn place(operation: &Operation) -> String {
    match (&operation.host_reason, operation.array) {
        (Some(reason), _) => format!("host: {reason}"),
        (None, 0) => "host".to_owned(),
        (None, _) if operation.code => "array, machine code".to_owned(),
        (None, _) => "array, a description that only simulated devices compute".to_owned(),
    }
}

/// A row for each kernel.
pub(super) fn kernels(page: &mut Markup, pass: &Pass) {
    table(page, &["kernel", "who has or makes it", "from", "configuration", "dispatches"], |page| {
        for operation in pass.operations.iter().filter(|operation| operation.array > 0) {
            page.element("tr", &[("class", &"kernel")], |row| {
                let has = |kernels: &std::collections::BTreeSet<String>| kernels.contains(&operation.shape);
                let index = pass.configurations.iter().position(|configuration| has(&configuration.kernels));
                row.element("td", &[("class", &"name")], |cell| {
                    index.iter().for_each(|index| super::key(cell, *index));
                    cell.text(&operation.shape);
                });
                row.leaf("td", &[], &operation.kernel.as_deref().unwrap_or("unknown"));
                row.leaf("td", &[], &operation.from.as_deref().unwrap_or("unknown"));
                number(row, "configuration", &index.map_or_else(|| "unknown".to_owned(), |index| index.to_string()));
                number(row, "dispatches", &operation.array);
            });
        }
    });
}

/// A row for each graph of a run.
pub(super) fn steps(page: &mut Markup, run: &OrdinaryRun) {
    let header = ["graph", "tokens", "behind", "PDIs", "submissions", "chains", "contexts made", "context switches"];
    table(page, &header, |page| {
        for step in &run.steps {
            page.element("tr", &[("class", &"step")], |row| {
                row.leaf("td", &[], &step.name);
                number(row, "tokens", &step.tokens);
                number(row, "past", &step.past);
                number(row, "pdis", &step.pdis);
                number(row, "submissions", &step.submissions);
                number(row, "chains", &step.chains);
                number(row, "contexts", &step.contexts_made);
                number(row, "switches", &step.context_switches);
            });
        }
    });
}
