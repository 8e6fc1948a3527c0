//! The kernels that a run missed, from the statistics it wrote (`GGML_HSA_STATS`).
//!
//! A run lists every kernel that neither the library nor the kernel directory had. Nodes are in the form that kernels are made
//! for, so their names do not depend on options of this tool. The list is generated: a kernel in it that cannot be made
//! (which may be why it was missed) is skipped with a note, and the others are generated.

use crate::configuration::{Document, KernelSet, Member, Problem, Value};
use crate::configuration::{KernelRequest, check_request};
use aie_hal::ArchRegistry;
use aie_ops::Node;

const VERSION: u64 = 1;
/// Reasons of kernels that the run had, from elsewhere than the library and the directory.
const EXISTED: [&str; 2] = ["compiled", "cache"];

/// Adds the missed kernels of `document` to `names`.
///
/// # Errors
/// Everything that shows that the file is not one of statistics.
pub fn read(document: &Document, arches: &ArchRegistry, names: &mut KernelSet) -> Result<(), Vec<Problem>> {
    let missed = missed(document).map_err(|problem| vec![problem])?;
    let mut problems = Vec::new();
    for entry in &missed {
        match request(entry, arches) {
            Ok(Ok(kernel)) => match names.same_as(&kernel).map(|other| other.place.clone()) {
                Some(other) => {
                    names.notes.push(entry.problem(format!("the same kernel as {other}; it is generated once")))
                }
                None => {
                    if let Err(problem) = names.add(kernel) {
                        names.notes.push(problem);
                    }
                }
            },
            Ok(Err(reason)) => names.notes.push(entry.problem(format!("skipped: {reason}"))),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

fn missed(document: &Document) -> Result<Vec<Value<'_>>, Problem> {
    let root = document.root()?;
    let version: u64 = child(&root, "version")?.read()?;
    if version != VERSION {
        let message = format!("statistics of version {version}; this tool reads version {VERSION}; record them again");
        return Err(root.problem(message));
    }
    child(&child(&root, "store")?, "missed")?.elements()
}

fn child<'d>(object: &Value<'d>, key: &str) -> Result<Value<'d>, Problem> {
    Ok(member(object, &object.members()?, key)?.clone())
}

/// The member `key` of `object`, whose members these are.
fn member<'m, 'd>(object: &Value<'d>, members: &'m [Member<'d>], key: &str) -> Result<&'m Value<'d>, Problem> {
    let found = members.iter().find(|member| member.key == key).map(|member| &member.value);
    found.ok_or_else(|| {
        let hint = "is this a file that GGML_HSA_STATS named? It has {\"version\": 1, \"store\": {\"missed\": [...]}}";
        object.problem(format!("there is no '{key}'; {hint}"))
    })
}

/// The kernel of one entry; inside, why there is none.
fn request(entry: &Value<'_>, arches: &ArchRegistry) -> Result<Result<KernelRequest, String>, Problem> {
    let members = entry.members()?;
    let name: String = member(entry, &members, "kernel")?.read()?;
    let arch: String = member(entry, &members, "arch")?.read()?;
    let node: Node = member(entry, &members, "node")?.read()?;
    let reason = members.iter().find(|member| member.key == "reason");
    let reason: Option<String> = reason.map(|member| member.value.read()).transpose()?;
    let existed = reason.is_some_and(|reason| EXISTED.contains(&reason.as_str()));
    let Some(arch) = arches.get(&arch) else {
        let known = arches.names().collect::<Vec<_>>().join(", ");
        return Ok(Err(format!("the generation {arch} is not known; possible: {known}")));
    };
    Ok(match check_request(entry.place(), &node, &arch, existed) {
        Ok(kernel) if kernel.name == name => Ok(kernel),
        Ok(KernelRequest { name: found, .. }) => {
            Err(format!("its node has the name {found}, not {name}; record the statistics with this version"))
        }
        Err(error) => Err(error.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_ops::name::kernel_name;
    use aie_ops::{DataType, OpParams, Placement, Tensor, table};
    use rstest::rstest;
    use serde_json::{Value as Json, json};

    fn node(elements: usize) -> Node {
        let tensor = Tensor::contiguous(DataType::F32, [elements, 1, 1, 1]);
        Node::new("ADD", OpParams::default(), tensor, vec![Some(tensor); 2])
    }

    fn entry(elements: usize) -> Json {
        let name = format!("add-{elements}f32-{elements}f32-{elements}f32");
        json!({"arch": "aie2p", "kernel": name, "node": node(elements), "reason": "not in the directory"})
    }

    fn run(file: &Json) -> Result<KernelSet, Vec<String>> {
        let mut names = KernelSet::default();
        let document = Document::new("s.json", file.to_string());
        read(&document, &ArchRegistry::builtin(), &mut names)
            .map(|()| names)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    fn stats(missed: &[Json]) -> Json {
        json!({"version": 1, "dispatches": 7, "store": {"memory": 1, "missed": missed}})
    }

    #[test]
    fn missed_kernels_are_wanted_once_each() {
        let found = run(&stats(&[entry(8), entry(16), entry(8)])).unwrap();
        let names: Vec<_> = found.kernels.iter().map(|kernel| kernel.exported_name.as_str()).collect();
        assert_eq!(names, ["add-8f32-8f32-8f32", "add-16f32-16f32-16f32"]);
        assert_eq!((found.kernels[0].node.clone(), found.notes.len()), (node(8), 1));
    }

    /// Row transfers run on the CPU unless the run had a kernel for them.
    #[rstest]
    #[case("GET_ROWS", "compiled", true)]
    #[case("SET_ROWS", "cache", true)]
    #[case("GET_ROWS", "no kernel get_rows", false)]
    fn kernels_that_a_run_made_are_wanted_wherever_the_operation_runs(
        #[case] op: &str,
        #[case] reason: &str,
        #[case] expected: bool,
    ) {
        let op = table::lookup(op).unwrap();
        let tensor = |dtype, ne| Tensor::contiguous(dtype, ne);
        let (table, rows) = (tensor(DataType::F32, [64, 9, 1, 1]), tensor(DataType::F32, [64, 3, 1, 1]));
        let (output, sources) = match op.name() {
            "GET_ROWS" => (rows, vec![table, tensor(DataType::I32, [3, 1, 1, 1])]),
            _ => (table, vec![rows, tensor(DataType::I64, [3, 1, 1, 1]), table]),
        };
        let node = Node::new(op.name(), OpParams::default(), output, sources.into_iter().map(Some).collect());
        assert!(matches!(op.placement(&node), Placement::Host(_)));
        let entry = json!({"arch": "aie2p", "kernel": kernel_name(op, &node), "node": node, "reason": reason});
        let found = run(&stats(&[entry])).unwrap();
        assert_eq!(found.kernels.len(), usize::from(expected), "{:?}", found.notes);
        assert!(expected || found.notes[0].to_string().contains("is computed on the CPU"));
    }

    #[test]
    fn what_cannot_be_made_is_left_out_with_the_reason() {
        let with = |pointer: &str, value: Json| {
            let mut entry = entry(8);
            *entry.pointer_mut(pointer).unwrap() = value;
            entry
        };
        let missed = [
            with("/arch", "aie9".into()),
            with("/kernel", "add-9f32".into()),
            with("/node/op", "NONSENSE".into()),
            with("/node/sources", json!([])),
            with("/node/output/ne", json!([u64::MAX, u64::MAX, 1, 1])),
            entry(32),
        ];
        let found = run(&stats(&missed)).unwrap();
        assert_eq!(found.kernels.len(), 1);
        let expected = [
            "the generation aie9 is not known; possible: aie2, aie2p",
            "its node has the name add-8f32-8f32-8f32, not add-9f32",
            "operation NONSENSE is not in the table",
            "ADD: source 0 is missing",
            "the output is not well formed",
        ];
        assert_eq!(found.notes.len(), expected.len());
        for (index, (note, expected)) in found.notes.iter().zip(expected).enumerate() {
            let note = note.to_string();
            assert!(note.contains(&format!("store.missed[{index}]: skipped: {expected}")), "{note}");
        }
    }

    #[rstest]
    #[case(json!({}), "there is no 'version'; is this a file that GGML_HSA_STATS named?")]
    #[case(json!({"version": 9, "store": {"missed": []}}), "statistics of version 9; this tool reads version 1")]
    #[case(json!({"version": 1}), "there is no 'store'")]
    #[case(json!({"version": 1, "store": {}}), "store: there is no 'missed'")]
    #[case(json!({"version": 1, "store": {"missed": [1]}}), "store.missed[0]: invalid type: integer `1`, expected an object")]
    #[case(json!({"version": 1, "store": {"missed": [{"kernel": "k", "arch": "a", "node": {}}]}}), "missed[0].node: missing field")]
    fn other_files_are_rejected(#[case] file: Json, #[case] expected: &str) {
        let problems = run(&file).unwrap_err();
        assert!(problems[0].contains(expected), "{problems:?}");
    }
}
