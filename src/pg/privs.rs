//! Who may see what.

use super::{catalog, raw, server};
use core::ffi::CStr;
use pgrx::pg_sys;

/// Whether the current role may see all users' statements: it has the privileges of `pg_read_all_stats`.
pub fn reads_all_stats() -> bool {
    // SAFETY: a catalogue look-up from an SQL function, which may raise: plain frames.
    unsafe { raw::has_privs_of_role(server::user().into(), pg_sys::ROLE_PG_READ_ALL_STATS.into()) }
}

/// Raises unless the current role may execute a function of one argument. There is nothing to be had from a function that
/// is not there, so it is not asked for.
pub fn require_execute(schema: &CStr, function: &CStr, argument: pg_sys::Oid) {
    let oid = catalog::function(schema, function, argument);
    let (role, execute) = (server::user().into(), pg_sys::ACL_EXECUTE as pg_sys::AclMode);
    if oid == pg_sys::InvalidOid {
        return;
    }
    // SAFETY: look-ups in an SQL function, which may raise: plain frames.
    unsafe {
        #[cfg(feature = "pg15")]
        let result = raw::pg_proc_aclcheck(oid, role, execute);
        #[cfg(not(feature = "pg15"))]
        let result = raw::object_aclcheck(pg_sys::ProcedureRelationId, oid, role, execute);
        if result != pg_sys::AclResult::ACLCHECK_OK {
            raw::aclcheck_error(result, pg_sys::ObjectType::OBJECT_FUNCTION, function.as_ptr());
        }
    }
}
