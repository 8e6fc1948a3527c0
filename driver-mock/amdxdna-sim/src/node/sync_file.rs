//! Sync files: descriptors that stand for one fence.

use super::syncobj::Fence;
use std::sync::Arc;

/// What a sync file stands for.
#[derive(Debug)]
pub struct SyncFile(Fence);

impl SyncFile {
    pub(super) fn new(fence: Fence) -> Arc<Self> {
        Arc::new(Self(fence))
    }

    pub(super) fn fence(&self) -> Fence {
        self.0.clone()
    }
}
