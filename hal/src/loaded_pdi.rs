//! PDIs in the device heap. Equal ones share one upload, one number, and so one place in a context.

use crate::artifact::{Digest, KernelArtifact};
use crate::error::DeviceError;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// A PDI in the device heap, in memory `H`.
#[derive(Debug)]
pub struct LoadedPdi<H> {
    /// Small and dense. PDIs with the same number are interchangeable: a context that holds one of them serves the others, also
    /// after all of them were unloaded and one was loaded again.
    pub number: usize,
    /// What it is.
    pub digest: Digest,
    /// Its length in bytes.
    pub bytes: usize,
    /// Where it is.
    pub memory: H,
}

/// The PDIs of an NPU by digest. Numbers are dense, and a digest has the same one forever.
#[derive(Debug)]
pub struct PdiTable<H> {
    known: HashMap<Digest, (usize, Weak<LoadedPdi<H>>)>,
}

impl<H> Default for PdiTable<H> {
    fn default() -> Self {
        Self { known: HashMap::new() }
    }
}

impl<H> PdiTable<H> {
    /// The loaded PDI of `artifact`; `upload` puts its bytes into the device heap when it is not loaded.
    ///
    /// # Errors
    /// Those of `upload`; the table is unchanged then.
    pub fn load(
        &mut self,
        artifact: &KernelArtifact,
        upload: impl FnOnce(&[u8]) -> Result<H, DeviceError>,
    ) -> Result<Arc<LoadedPdi<H>>, DeviceError> {
        let (next, digest) = (self.known.len(), *artifact.digest());
        let (number, loaded) = self.known.get(&digest).map_or((next, None), |(n, weak)| (*n, weak.upgrade()));
        if let Some(loaded) = loaded {
            return Ok(loaded);
        }
        let (memory, bytes) = (upload(artifact.pdi())?, artifact.pdi().len());
        let pdi = Arc::new(LoadedPdi { number, digest, bytes, memory });
        self.known.insert(digest, (number, Arc::downgrade(&pdi)));
        Ok(pdi)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifact::example;
    use std::cell::Cell;

    fn artifact(name: &str) -> KernelArtifact {
        example("aie2p", name, [])
    }

    #[test]
    fn numbers_are_dense_and_belong_to_a_digest_for_ever() {
        let (mut table, uploads) = (PdiTable::default(), Cell::new(0));
        let mut load = |name: &str| {
            let upload = |_: &[u8]| {
                uploads.set(uploads.get() + 1);
                Ok(())
            };
            table.load(&artifact(name), upload).unwrap()
        };
        let (a, b) = (load("a"), load("b"));
        assert_eq!((a.number, b.number), (0, 1));
        assert!(Arc::ptr_eq(&a, &load("a")));
        assert_eq!(uploads.get(), 2);
        drop(a);
        let (c, a) = (load("c"), load("a"));
        assert_eq!((a.number, c.number), (0, 2));
        assert_eq!(uploads.get(), 4, "a was unloaded and is uploaded again");
    }

    #[test]
    fn a_failed_upload_leaves_nothing() {
        let mut table = PdiTable::default();
        let rejected = DeviceError::Lost("as planned".into());
        let error = table.load(&artifact("a"), |_| Err(rejected.clone())).unwrap_err();
        assert_eq!(error, rejected);
        assert_eq!(table.load(&artifact("b"), |_| Ok(())).unwrap().number, 0);
        assert_eq!(table.load(&artifact("a"), |_| Ok(())).unwrap().number, 1);
    }
}
