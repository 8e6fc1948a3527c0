//! What a GGUF file says of a model besides its weights.

use super::gguf::{self, GgufError};
use aie_ops::{DataType, Tensor};
use gguf_rs_lib::format::Metadata;
use gguf_rs_lib::format::metadata::MetadataValue;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

/// A model cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The file cannot be opened.
    #[error("cannot read the model {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no GGUF file, or a damaged one.
    #[error("{} is not a usable GGUF file: {source}; is it a complete download?", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Why.
        source: GgufError,
    },
    /// A tensor of a type or shape that ggml does not have.
    #[error("tensor {tensor}: {reason}")]
    Tensor {
        /// Its name.
        tensor: String,
        /// What is wrong.
        reason: String,
    },
    /// A number that every model has is absent.
    #[error("the file does not say `{0}`, which llama.cpp needs as well")]
    Missing(String),
}

/// Names, types, shapes and numbers of a model.
#[derive(Debug)]
pub struct ModelFile {
    /// `general.architecture`.
    pub architecture: String,
    /// Tensors by name.
    pub tensors: BTreeMap<String, Tensor>,
    metadata: Metadata,
}

impl ModelFile {
    /// Reads the beginning of a file.
    ///
    /// # Errors
    /// [`ModelError`].
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let file = File::open(path).map_err(|source| ModelError::Open { path: path.into(), source })?;
        let format = |source| ModelError::Format { path: path.into(), source };
        let length = file.metadata().map_err(|cause| format(cause.into()))?.len();
        let (metadata, infos) = gguf::read(BufReader::new(file), length).map_err(format)?;
        let mut tensors = BTreeMap::new();
        for (name, kind, extents) in infos {
            match tensor(kind, &extents) {
                Ok(tensor) => drop(tensors.insert(name, tensor)),
                Err(reason) => return Err(ModelError::Tensor { tensor: name, reason }),
            }
        }
        Self::new(tensors, metadata)
    }

    /// A model from its parts.
    ///
    /// # Errors
    /// [`ModelError::Missing`] when the architecture is.
    pub fn new(tensors: BTreeMap<String, Tensor>, metadata: Metadata) -> Result<Self, ModelError> {
        const KEY: &str = "general.architecture";
        let architecture = metadata.get_string(KEY).ok_or_else(|| ModelError::Missing(KEY.into()))?.to_owned();
        Ok(Self { architecture, tensors, metadata })
    }

    /// The name that the model's makers gave it.
    pub fn name(&self) -> Option<&str> {
        self.metadata.get_string("general.name")
    }

    /// The entry `key` of the architecture.
    fn value(&self, key: &str) -> Option<&MetadataValue> {
        self.metadata.get(&format!("{}.{key}", self.architecture))
    }

    /// An integer of the architecture.
    pub fn integer(&self, key: &str) -> Option<usize> {
        self.value(key).and_then(as_integer)
    }

    /// A yes or no of the architecture.
    pub fn flag(&self, key: &str) -> Option<bool> {
        self.value(key).and_then(MetadataValue::as_bool)
    }

    /// Tokens that the model was trained for.
    ///
    /// # Errors
    /// [`ModelError::Missing`].
    pub fn context(&self) -> Result<usize, ModelError> {
        const KEY: &str = "context_length";
        let found = self.integer(KEY).filter(|tokens| *tokens > 0);
        found.ok_or_else(|| ModelError::Missing(format!("{}.{KEY}", self.architecture)))
    }

    /// Whether it makes embeddings of a text and continues none, as encoders do.
    pub fn embeds(&self) -> bool {
        self.flag("attention.causal") == Some(false) || self.integer("pooling_type").is_some_and(|kind| kind > 0)
    }

    /// Bytes of all tensors.
    pub fn bytes(&self) -> usize {
        self.tensors.values().map(Tensor::span_bytes).sum()
    }
}

fn as_integer(value: &MetadataValue) -> Option<usize> {
    value.as_u64().and_then(|value| usize::try_from(value).ok()).or_else(|| usize::try_from(value.as_i64()?).ok())
}

/// A tensor of a file; they have no gaps.
fn tensor(type_name: &str, extents: &[u64]) -> Result<Tensor, String> {
    let dtype = DataType::from_name(type_name).ok_or_else(|| format!("its type {type_name} is not known here"))?;
    let mut ne = [1; 4];
    if extents.len() > ne.len() {
        return Err(format!("it has {} dimensions, ggml knows four", extents.len()));
    }
    for (to, from) in ne.iter_mut().zip(extents) {
        *to = usize::try_from(*from).map_err(|_| format!("an extent of {from}"))?;
    }
    // Strides count also where there are no elements.
    let elements = ne.iter().try_fold(1usize, |product, extent| product.checked_mul((*extent).max(1)));
    if elements.is_none_or(|elements| elements.checked_mul(8).is_none()) {
        return Err(format!("extents {ne:?} exceed any memory"));
    }
    let tensor = Tensor::contiguous(dtype, ne);
    tensor.validate().map_err(|cause| cause.to_string())?;
    Ok(tensor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn other_files_are_rejected_with_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        assert!(ModelFile::open(&path).unwrap_err().to_string().starts_with("cannot read the model"));
        std::fs::write(&path, "hello, world, this is no model").unwrap();
        let message = ModelFile::open(&path).unwrap_err().to_string();
        assert!(message.contains("model.gguf is not a usable GGUF file"), "{message}");
    }

    fn with(pairs: &[(&str, MetadataValue)]) -> ModelFile {
        let mut metadata = Metadata::new();
        metadata.insert("general.architecture".into(), MetadataValue::String("bert".into()));
        pairs.iter().for_each(|(key, value)| metadata.insert(format!("bert.{key}"), value.clone()));
        ModelFile::new(BTreeMap::new(), metadata).unwrap()
    }

    #[rstest]
    #[case::text(&[], false)]
    #[case::causal(&[("attention.causal", MetadataValue::Bool(true)), ("pooling_type", MetadataValue::U32(0))], false)]
    #[case::encoder(&[("attention.causal", MetadataValue::Bool(false))], true)]
    #[case::pooled(&[("pooling_type", MetadataValue::U32(3))], true)]
    fn models_of_embeddings_are_recognised(#[case] pairs: &[(&str, MetadataValue)], #[case] expected: bool) {
        assert_eq!(with(pairs).embeds(), expected);
    }

    #[test]
    fn a_context_is_at_least_a_token() {
        let context = |tokens| with(&[("context_length", MetadataValue::U32(tokens))]).context();
        assert_eq!(context(512).unwrap(), 512);
        assert!(context(0).unwrap_err().to_string().contains("`bert.context_length`"));
    }

    #[rstest]
    #[case("Q4_K", &[256, 2], Ok([256, 2, 1, 1]))]
    #[case("F32", &[], Ok([1; 4]))]
    #[case("Q4_K", &[100], Err("not whole blocks"))]
    #[case("Q9_X", &[256], Err("Q9_X is not known"))]
    #[case("F32", &[u64::MAX, 4], Err("exceed any memory"))]
    #[case("F32", &[4, u64::MAX, 0], Err("exceed any memory"))]
    fn tensors_are_checked(#[case] name: &str, #[case] extents: &[u64], #[case] expected: Result<[usize; 4], &str>) {
        match (tensor(name, extents), expected) {
            (Ok(tensor), Ok(ne)) => assert_eq!(tensor.ne, ne),
            (Err(message), Err(part)) => assert!(message.contains(part), "{message}"),
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    }
}
