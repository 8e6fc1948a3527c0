use super::*;
use crate::cpu_agent::rig::artifact;
use crate::cpu_agent::{Call, CpuAgent};
use crate::pool::Pool;
use aie_hal::{BufferParams, MemoryPool};

struct Setup {
    agent: Arc<CpuAgent>,
    pool: Arc<Pool>,
    table: PdiTable,
}

impl Setup {
    fn new() -> Self {
        let agent = CpuAgent::new(|_| {});
        let pool = Pool::new(agent.clone(), 1);
        Self { agent, pool, table: PdiTable::default() }
    }

    fn load(&mut self, description: &str) -> Arc<LoadedPdi> {
        let pool = &self.pool;
        let upload = |bytes: &[u8]| {
            pool.allocate(&BufferParams { size: bytes.len(), alignment: 4096, pool: MemoryPool::DeviceHeap })
        };
        self.table.load(&artifact(description, 1), upload).unwrap()
    }
}

#[test]
fn numbers_are_dense_and_belong_to_a_digest_for_ever() {
    let mut setup = Setup::new();
    let (a, b) = (setup.load("a"), setup.load("b"));
    assert_eq!((a.number(), b.number()), (0, 1));
    assert!(Arc::ptr_eq(&a, &setup.load("a")));
    assert_eq!(setup.agent.calls(Call::AllocateHeap), 2);
    drop(a);
    let (c, a) = (setup.load("c"), setup.load("a"));
    assert_eq!((a.number(), c.number()), (0, 2));
    assert_eq!(setup.agent.calls(Call::AllocateHeap), 4, "a was unloaded and is uploaded again");
}

#[test]
fn a_failed_upload_leaves_nothing() {
    let mut setup = Setup::new();
    let refused = DeviceError::Lost("as planned".into());
    let error = setup.table.load(&artifact("a", 1), |_| Err(refused.clone())).unwrap_err();
    assert_eq!(error, refused);
    assert_eq!(setup.load("b").number(), 0);
    assert_eq!(setup.load("a").number(), 1);
}
