//! The families as a compiler that kernel stores ask.

use crate::codegen::LoopForm;
use crate::families;
use crate::kit::{self, Family, NativeError};
use aie_hal::{Arch, KernelArtifact};
use aie_ops::compiler::{CompileError, KernelCompiler};
use aie_ops::name::kernel_name;
use aie_ops::{Node, Operation};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

/// SHA-256 in hexadecimal of the sources that kernels are made from. What was made from other sources may differ.
pub const SOURCE_DIGEST: &str = env!("AIE_JIT_NATIVE_SOURCE_DIGEST");

/// Says which families may be used on a device, and how. Thread-safe.
pub trait Admission: Send + Sync + Debug {
    /// Whether kernels of `family` may be used. May take a while the first time.
    ///
    /// # Errors
    /// Why they may not, for messages.
    fn admits(&self, family: &'static Family, arch: &Arch) -> Result<(), String>;

    /// Whether families that are [chosen](Products) may be used, all that the device's generation has: where one may not, kernels are those
    /// of the others. May take a while the first time.
    fn admits_chosen(&self) -> bool {
        true
    }

    /// What repeats the innermost loops of kernels there. May take a while the first time.
    fn loops(&self) -> LoopForm {
        LoopForm::default()
    }
}

/// Which family makes products with few columns, and what goes with them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Products {
    /// The one that makes all others.
    Product,
    /// [`families::rings`], where it takes the node, and products of prompts by [`families::products::prompts`]; and what a token has beside its
    /// products by [`families::rings::vectors`] and [`families::rings::attention`].
    #[default]
    Rings,
}

/// Makes kernels as machine code, in this process and in milliseconds: it starts no tool and reads no file. What no
/// [family](crate::families) takes, and what is for a generation that none has a program for, is unsupported, so that a store asks
/// the next compiler.
///
/// It asks the crate's own families, and those of other crates before them ([`NativeCompiler::with_families`]).
#[derive(Debug, Clone)]
pub struct NativeCompiler {
    /// The first that takes a node has it, behind those that are chosen.
    families: Vec<&'static Family>,
    /// What tells versions of families of other crates apart.
    versions: String,
    products: Products,
    admission: Option<Arc<dyn Admission>>,
    /// Without an admission.
    loops: LoopForm,
}

impl Default for NativeCompiler {
    fn default() -> Self {
        let families = families::FAMILIES.to_vec();
        let products = Products::Product;
        Self { families, versions: String::new(), products, admission: None, loops: LoopForm::default() }
    }
}

impl NativeCompiler {
    /// Asks these families before those that it has. Stores keep kernels under `version` too: it has to be another one whenever the
    /// kernels of these families may be others, such as a digest of the sources that make them.
    #[must_use]
    pub fn with_families(mut self, families: impl IntoIterator<Item = &'static Family>, version: &str) -> Self {
        self.families.splice(0..0, families);
        self.versions = format!("{} {version}", self.versions).trim().to_owned();
        self
    }

    /// Asks the families that are chosen with these products before the others. Stores keep kernels of another choice apart.
    #[must_use]
    pub fn with_products(self, products: Products) -> Self {
        Self { products, ..self }
    }

    /// The families that are asked: those that are chosen, if they may be used, and the others.
    fn asked(&self) -> Vec<&'static Family> {
        let chosen = if self.has_chosen() { families::CHOSEN } else { &[] };
        chosen.iter().chain(&self.families).copied().collect()
    }

    fn has_chosen(&self) -> bool {
        self.products == Products::Rings && self.admission.as_ref().is_none_or(|admission| admission.admits_chosen())
    }

    /// What tells the families apart that are asked besides those of this crate for all nodes.
    fn versions(&self) -> String {
        let chosen = if self.has_chosen() { families::rings::FAMILY.name } else { "" };
        format!("{chosen} {}", self.versions).trim().to_owned()
    }

    /// The kernel of a normalised node by the first family that takes it, under the name that the family gives it.
    ///
    /// # Errors
    /// [`NativeError`].
    pub fn build(&self, node: &Node, arch: &Arch) -> Result<KernelArtifact, NativeError> {
        kit::build(&self.asked(), node, &self.loops().on(arch))
    }

    /// For a device on which `admission` says what may be used.
    pub fn admitted_by(admission: Arc<dyn Admission>) -> Self {
        Self { admission: Some(admission), ..Self::default() }
    }

    /// Whose kernels have this form of loops, for any device.
    pub fn with_loops(loops: LoopForm) -> Self {
        Self { loops, ..Self::default() }
    }

    fn loops(&self) -> LoopForm {
        self.admission.as_ref().map_or(self.loops, |admission| admission.loops())
    }
}

impl KernelCompiler for NativeCompiler {
    fn name(&self) -> &str {
        "native"
    }

    fn folder(&self) -> &str {
        "native"
    }

    fn makes_code(&self) -> bool {
        true
    }

    fn is_immediate(&self) -> bool {
        true
    }

    fn identity(&self) -> String {
        let loops = match self.loops() {
            LoopForm::Hardware => "",
            LoopForm::Jnz => ", loops by jnz",
        };
        let versions = self.versions();
        let versions = if versions.is_empty() { versions } else { format!(", with {versions}") };
        format!("native {} ({}{loops}{versions})", env!("CARGO_PKG_VERSION"), &SOURCE_DIGEST[..12])
    }

    fn sources(&self) -> String {
        format!("{SOURCE_DIGEST} {}", self.versions()).trim_end().to_owned()
    }

    /// All families that could make the kernel have to be admitted: which of them made one that is cached is not known.
    fn admits(&self, node: &Node, arch: &Arch) -> Result<(), String> {
        let Some(admission) = &self.admission else { return Ok(()) };
        let arch = &*admission.loops().on(arch);
        let asked = self.asked();
        let mut families = kit::families_of(&asked, &node.op).filter(|family| family.is_for(arch));
        families.try_for_each(|family| admission.admits(family, arch))
    }

    /// The kernel under the name that stores look for, whatever its family calls it.
    fn compile(&self, op: &dyn Operation, node: &Node, arch: &Arch) -> Result<KernelArtifact, CompileError> {
        Ok(self.build(node, arch)?.renamed(kernel_name(op, node)))
    }

    fn compile_apart(&self, op: &dyn Operation, node: &Node, arch: &Arch) -> Result<KernelArtifact, CompileError> {
        Ok(kit::build(&self.families, node, &self.loops().on(arch))?.renamed(kernel_name(op, node)))
    }

    fn compile_with(
        &self,
        op: &dyn Operation,
        node: &Node,
        arch: &Arch,
        features: &BTreeSet<String>,
    ) -> Result<KernelArtifact, CompileError> {
        let kernel = self.compile(op, node, arch)?;
        if kernel.configuration().is_none() {
            return Err(CompileError::Unsupported(format!("kernel {} has one PDI", kernel.name())));
        }
        Ok(families::rings::with_types(&kernel, &self.loops().on(arch), features)?)
    }
}

impl From<NativeError> for CompileError {
    fn from(error: NativeError) -> Self {
        match error {
            NativeError::NoFamily { .. } | NativeError::Unsupported { .. } | NativeError::Generation { .. } => {
                Self::Unsupported(error.to_string())
            }
            NativeError::Failed { .. } | NativeError::Artifact(_) => Self::failed(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_hal::ArchRegistry;
    use aie_ops::{DataType, OpParams, Tensor, table};

    fn compile(op: &str, arch: &str) -> Result<KernelArtifact, CompileError> {
        let tensor = Tensor::contiguous(DataType::F32, [64, 1, 1, 1]);
        let node = Node::new(op, OpParams::default(), tensor, vec![Some(tensor)]);
        let arch = ArchRegistry::builtin().get(arch).unwrap();
        NativeCompiler::default().compile(table::lookup(op).unwrap(), &node, &arch)
    }

    #[test]
    fn an_operation_without_a_family_is_unsupported() {
        let error = compile("TRI", "aie2").unwrap_err();
        assert!(matches!(&error, CompileError::Unsupported(reason) if reason.contains("TRI")), "{error:?}");
    }

    #[test]
    fn kernels_are_cached_under_the_sources_and_apart_from_others() {
        let compiler = NativeCompiler::default();
        assert!(compiler.identity().starts_with("native "));
        assert_eq!(compiler.sources().len(), 64);
        assert_eq!((compiler.folder(), compiler.makes_code()), ("native", true));
    }

    /// Kernels of another form are others, and a store that has them takes them for that.
    #[test]
    fn kernels_have_the_form_of_loops_that_the_compiler_has() {
        let [hardware, jnz] = [LoopForm::Hardware, LoopForm::Jnz].map(NativeCompiler::with_loops);
        assert_eq!(hardware.identity(), NativeCompiler::default().identity());
        assert_ne!(hardware.identity(), jnz.identity());
        let arch = ArchRegistry::builtin().get("aie2").unwrap();
        let x = Tensor::contiguous(DataType::F32, [64, 1, 1, 1]);
        let node = Node::new("SQRT", OpParams::default(), x, vec![Some(x)]);
        let made = |compiler: &NativeCompiler| compiler.compile(table::lookup("SQRT").unwrap(), &node, &arch).unwrap();
        assert_ne!(made(&hardware).pdi(), made(&jnz).pdi());
        assert_eq!(made(&hardware).instructions(), made(&jnz).instructions());
    }

    /// Kernels of one choice are not taken for those of the other.
    #[test]
    fn products_are_chosen() {
        let [product, rings] =
            [Products::Product, Products::Rings].map(|products| NativeCompiler::default().with_products(products));
        let default = NativeCompiler::default();
        assert_eq!((product.identity(), product.sources()), (default.identity(), default.sources()));
        assert!(rings.identity() != default.identity() && rings.sources() != default.sources());
        let names = |compiler: &NativeCompiler, op: &str| {
            kit::families_of(&compiler.asked(), op).map(|family| family.name).collect::<Vec<_>>()
        };
        let of = |op| (names(&product, op), names(&rings, op));
        assert_eq!(
            of("MUL_MAT"),
            (vec!["product", "rings-products"], vec!["rings", "prompts", "product", "rings-products"])
        );
        assert_eq!(of("ROPE"), (vec!["rope"], vec!["vectors", "rope"]));
    }

    /// Admits what computes nothing.
    #[derive(Debug)]
    struct CopiesOnly;

    impl Admission for CopiesOnly {
        fn admits(&self, family: &'static Family, _: &Arch) -> Result<(), String> {
            if family.name == "copies" { Ok(()) } else { Err(format!("{} failed", family.name)) }
        }
    }

    /// Admits what is not chosen.
    #[derive(Debug)]
    struct NothingChosen;

    impl Admission for NothingChosen {
        fn admits(&self, family: &'static Family, _: &Arch) -> Result<(), String> {
            let is_chosen = families::CHOSEN.iter().any(|chosen| chosen.name == family.name);
            if is_chosen { Err(format!("{} failed", family.name)) } else { Ok(()) }
        }

        fn admits_chosen(&self) -> bool {
            false
        }
    }

    /// One wrong family costs no operation that another has, and kernels are kept with those of the other choice.
    #[test]
    fn what_is_chosen_and_may_not_be_used_is_left_out() {
        let arch = ArchRegistry::builtin().get("aie2").unwrap();
        let compiler = NativeCompiler::admitted_by(Arc::new(NothingChosen)).with_products(Products::Rings);
        let x = Tensor::contiguous(DataType::F32, [64, 1, 1, 1]);
        let node = Node::new("ADD", OpParams::default(), x, vec![Some(x); 2]);
        assert_eq!(compiler.admits(&node, &arch), Ok(()));
        assert_eq!(
            compiler.build(&node, &arch).unwrap().pdi(),
            NativeCompiler::default().build(&node, &arch).unwrap().pdi()
        );
        assert_eq!(compiler.identity(), NativeCompiler::default().identity());
    }

    #[test]
    fn what_may_be_used_goes_by_the_families_of_an_operation() {
        let arch = ArchRegistry::builtin().get("aie2").unwrap();
        let x = Tensor::contiguous(DataType::F32, [64, 1, 1, 1]);
        let node = |op: &str| Node::new(op, OpParams::default(), x, vec![Some(x)]);
        let compiler = NativeCompiler::admitted_by(Arc::new(CopiesOnly));
        assert_eq!(compiler.admits(&node("CONT"), &arch), Ok(()));
        assert_eq!(compiler.admits(&node("SIN"), &arch), Err("elementwise failed".into()));
        // What no family has is rejected when it is compiled.
        assert_eq!(compiler.admits(&node("TRI"), &arch), Ok(()));
        assert_eq!(NativeCompiler::default().admits(&node("SIN"), &arch), Ok(()));
    }
}
