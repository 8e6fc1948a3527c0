//! SET_STATE. Only the super-user may, so the records of a run say who it was.

use super::{Script, script};
use crate::names::NOWHERE;
use crate::probe::Probe;
use crate::setup::list;
use amdxdna_sys::*;

pub(super) const SCRIPTS: &[Script] = &[
    script("state: power mode", "every power mode, and more", power_mode),
    script("state: preemption", "forced, at frame boundaries", preemption),
    script("state: others", "what there is not, and wrong fields", others),
];

/// Sets something to a byte, with `padding` behind it; then asks for it.
fn set(p: &mut Probe, param: u32, question: u32, value: u8, padding: u8) {
    let state = [u64::from(value) | u64::from(padding) << 32];
    p.with("value", value).with("padding", padding).with("root", nix::unistd::geteuid().is_root());
    let _ = p.call(&mut amdxdna_drm_set_state { param, buffer_size: 8, buffer: list(&state) });
    let mut answer = [0_u64];
    let _ = p.quietly(|p| p.get_info(question, &mut answer));
    p.note("is now", answer[0]);
}

fn power_mode(p: &mut Probe) {
    for mode in [1, 2, 3, 4, 5, 255, 0] {
        set(p, DRM_AMDXDNA_SET_POWER_MODE, DRM_AMDXDNA_GET_POWER_MODE, mode, 0);
    }
    set(p, DRM_AMDXDNA_SET_POWER_MODE, DRM_AMDXDNA_GET_POWER_MODE, 1, 1);
    set(p, DRM_AMDXDNA_SET_POWER_MODE, DRM_AMDXDNA_GET_POWER_MODE, 0, 0);
}

fn preemption(p: &mut Probe) {
    for value in [1, 2, 0] {
        set(p, DRM_AMDXDNA_SET_FORCE_PREEMPT, DRM_AMDXDNA_GET_FORCE_PREEMPT_STATE, value, 0);
        set(p, DRM_AMDXDNA_SET_FRAME_BOUNDARY_PREEMPT, DRM_AMDXDNA_GET_FRAME_BOUNDARY_PREEMPT_STATE, value, 0);
    }
    set(p, DRM_AMDXDNA_SET_FORCE_PREEMPT, DRM_AMDXDNA_GET_FORCE_PREEMPT_STATE, 0, 1);
}

fn others(p: &mut Probe) {
    let zeros = [0_u64; 8];
    let right = amdxdna_drm_set_state { param: DRM_AMDXDNA_SET_POWER_MODE, buffer_size: 8, buffer: list(&zeros) };
    p.call_each([
        amdxdna_drm_set_state { buffer: NOWHERE, ..right },
        amdxdna_drm_set_state { buffer: 0, ..right },
        amdxdna_drm_set_state { buffer_size: 0, ..right },
        amdxdna_drm_set_state { buffer_size: 64, ..right },
        amdxdna_drm_set_state { param: DRM_AMDXDNA_WRITE_AIE_MEM, ..right },
        amdxdna_drm_set_state { param: DRM_AMDXDNA_WRITE_AIE_REG, ..right },
        amdxdna_drm_set_state { param: 99, ..right },
        amdxdna_drm_set_state { param: 99, buffer: NOWHERE, ..right },
    ]);
}
