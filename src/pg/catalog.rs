//! What the system catalogues of this database say of the extension's own objects. Guarded calls, which may raise, for
//! SQL functions; they run no statement, so that nothing of it is recorded.

use core::ffi::CStr;
use pgrx::pg_sys;
use pgrx::prelude::*;

/// Names of a relation's columns, in order; `None` where there is no such relation.
pub fn columns_of(schema: &CStr, relation: &CStr) -> Option<Vec<String>> {
    // SAFETY: guarded catalogue look-ups by name; the names are C strings in the current memory context, or null.
    unsafe {
        let namespace = pg_sys::get_namespace_oid(schema.as_ptr(), true);
        let relation = pg_sys::get_relname_relid(relation.as_ptr(), namespace);
        if relation == pg_sys::InvalidOid {
            return None;
        }
        let names = (1..).map_while(|n| {
            let name = pg_sys::get_attname(relation, n, true);
            (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned())
        });
        Some(names.collect())
    }
}

/// The version of the extension's SQL objects in this database; `None` where it was not created.
pub fn extension_version(extension: &CStr) -> Option<String> {
    // SAFETY: a guarded scan of pg_extension by name, ended before the result is used.
    unsafe {
        let relation =
            pg_sys::table_open(pg_sys::ExtensionRelationId, pg_sys::AccessShareLock as pg_sys::LOCKMODE);
        let mut key = pg_sys::ScanKeyData::default();
        pg_sys::ScanKeyInit(
            &mut key,
            pg_sys::Anum_pg_extension_extname as pg_sys::AttrNumber,
            pg_sys::BTEqualStrategyNumber as pg_sys::StrategyNumber,
            pg_sys::F_NAMEEQ.into(),
            pg_sys::Datum::from(extension.as_ptr()),
        );
        let scan = pg_sys::systable_beginscan(
            relation,
            pg_sys::ExtensionNameIndexId.into(),
            true,
            core::ptr::null_mut(),
            1,
            &mut key,
        );
        let tuple = pg_sys::systable_getnext(scan);
        let mut null = true;
        let version = if tuple.is_null() {
            None
        } else {
            let column = pg_sys::Anum_pg_extension_extversion as i32;
            let datum = pg_sys::heap_getattr(tuple, column, (*relation).rd_att, &mut null);
            String::from_datum(datum, null)
        };
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(relation, pg_sys::AccessShareLock as pg_sys::LOCKMODE);
        version
    }
}

/// Whether the script of an extension is running.
pub fn in_extension_script() -> bool {
    // SAFETY: a plain read of the backend's own variable.
    unsafe { pg_sys::creating_extension }
}
