//! Names and numbers of KFD's calls, for reports and fault plans.

/// The ioctls that are answered, by name in reports and by number.
pub const KFD_CALLS: &[(&str, u32)] = &[
    ("KFD_GET_VERSION", 0x01),
    ("KFD_CREATE_EVENT", 0x08),
    ("KFD_DESTROY_EVENT", 0x09),
    ("KFD_SET_EVENT", 0x0a),
    ("KFD_RESET_EVENT", 0x0b),
    ("KFD_WAIT_EVENTS", 0x0c),
    ("KFD_GET_PROCESS_APERTURES_NEW", 0x14),
    ("KFD_SET_XNACK_MODE", 0x21),
    ("KFD_RUNTIME_ENABLE", 0x25),
];
