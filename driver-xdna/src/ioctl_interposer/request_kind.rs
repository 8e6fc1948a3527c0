//! What a request of ROCR's asks for.

use amdxdna_sys::{
    Request, RequestCode, amdxdna_drm_config_hwctx, amdxdna_drm_create_bo, amdxdna_drm_create_hwctx,
    amdxdna_drm_destroy_hwctx, amdxdna_drm_exec_cmd, amdxdna_drm_get_bo_info, amdxdna_drm_get_info,
    amdxdna_drm_wait_cmd, drm_gem_close,
};
use std::ffi::c_ulong;

/// A request to an accel node, as far as the interposer answers, changes or makes it. Structures have grown at their ends, so their
/// size tells nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestKind {
    CreateContext,
    DestroyContext,
    ConfigContext,
    CreateBuffer,
    BufferInfo,
    Execute,
    Wait,
    CloseBuffer,
    GetInfo,
    /// Another request to an accel node.
    Other,
}

impl RequestKind {
    /// `None` for a request that is not DRM's, for instance one to `/dev/kfd`.
    pub(super) fn of(request: c_ulong) -> Option<Self> {
        let code = RequestCode(request as u32);
        code.is_drm().then(|| match code.number() {
            drm_gem_close::NUMBER => Self::CloseBuffer,
            amdxdna_drm_create_hwctx::NUMBER => Self::CreateContext,
            amdxdna_drm_destroy_hwctx::NUMBER => Self::DestroyContext,
            amdxdna_drm_config_hwctx::NUMBER => Self::ConfigContext,
            amdxdna_drm_create_bo::NUMBER => Self::CreateBuffer,
            amdxdna_drm_get_bo_info::NUMBER => Self::BufferInfo,
            amdxdna_drm_exec_cmd::NUMBER => Self::Execute,
            amdxdna_drm_get_info::NUMBER => Self::GetInfo,
            amdxdna_drm_wait_cmd::NUMBER => Self::Wait,
            _ => Self::Other,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(amdxdna_drm_create_hwctx::CODE, RequestKind::CreateContext)]
    #[case(amdxdna_drm_destroy_hwctx::CODE, RequestKind::DestroyContext)]
    #[case(amdxdna_drm_config_hwctx::CODE, RequestKind::ConfigContext)]
    #[case(amdxdna_drm_create_bo::CODE, RequestKind::CreateBuffer)]
    #[case(amdxdna_drm_get_bo_info::CODE, RequestKind::BufferInfo)]
    #[case(amdxdna_drm_exec_cmd::CODE, RequestKind::Execute)]
    #[case(amdxdna_drm_wait_cmd::CODE, RequestKind::Wait)]
    #[case(drm_gem_close::CODE, RequestKind::CloseBuffer)]
    #[case(amdxdna_drm_get_info::CODE, RequestKind::GetInfo)]
    fn requests_are_recognised(#[case] code: RequestCode, #[case] kind: RequestKind) {
        assert_eq!(RequestKind::of(code.0.into()), Some(kind));
    }

    #[test]
    fn requests_of_others_are_not_ours() {
        // KFD's version request, and one whose structure has grown.
        assert_eq!(RequestKind::of(0x8008_4b01), None);
        assert_eq!(
            RequestKind::of((amdxdna_drm_create_bo::CODE.0 + (8 << 16)).into()),
            Some(RequestKind::CreateBuffer)
        );
    }
}
