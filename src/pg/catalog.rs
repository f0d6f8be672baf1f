//! What the system catalogues of this database say of the extension's own objects. Look-ups that may raise, for
//! SQL functions, whose frames are plain; they run no statement, so that nothing of it is recorded.

use super::raw;
use core::ffi::CStr;
use pgrx::pg_sys;

/// Whether a relation has columns of these names, and no others, in this order; `None` where there is no such relation.
pub fn has_columns<'a>(
    schema: &CStr,
    relation: &CStr,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<bool> {
    // SAFETY: catalogue look-ups by name; a name is a C string in the current memory context, or null.
    unsafe {
        let namespace = raw::get_namespace_oid(schema.as_ptr(), true);
        let relation = raw::get_relname_relid(relation.as_ptr(), namespace);
        if relation == pg_sys::InvalidOid {
            return None;
        }
        let there = (1..).map_while(|n| {
            let name = raw::get_attname(relation, n, true);
            (!name.is_null()).then(|| CStr::from_ptr(name).to_bytes())
        });
        Some(there.eq(names.into_iter().map(str::as_bytes)))
    }
}

/// A function of one argument; `InvalidOid` where there is none.
pub fn function(schema: &CStr, name: &CStr, argument: pg_sys::Oid) -> pg_sys::Oid {
    // SAFETY: look-ups by name, of schemas without a look at rights; the vector is palloc'd.
    unsafe {
        let namespace = raw::get_namespace_oid(schema.as_ptr(), true);
        let arguments = raw::buildoidvector(&argument, 1);
        raw::GetSysCacheOid(
            pg_sys::SysCacheIdentifier::PROCNAMEARGSNSP as i32,
            pg_sys::Anum_pg_proc_oid as i16,
            pg_sys::Datum::from(name.as_ptr()),
            pg_sys::Datum::from(arguments),
            pg_sys::Datum::from(namespace),
            pg_sys::Datum::from(0usize),
        )
    }
}

/// The version of the extension's SQL objects in this database, in the current memory context; `None` where it was not
/// created.
pub fn extension_version<'a>(extension: &CStr) -> Option<&'a CStr> {
    // SAFETY: a scan of pg_extension by name, ended before the result is used.
    unsafe {
        let lock = pg_sys::AccessShareLock as i32;
        let relation = raw::table_open(pg_sys::ExtensionRelationId, lock);
        let mut key = pg_sys::ScanKeyData::default();
        raw::ScanKeyInit(
            &mut key,
            pg_sys::Anum_pg_extension_extname as i16,
            pg_sys::BTEqualStrategyNumber as u16,
            pg_sys::F_NAMEEQ.into(),
            pg_sys::Datum::from(extension.as_ptr()),
        );
        let index = pg_sys::ExtensionNameIndexId.into();
        let scan = raw::systable_beginscan(relation, index, true, core::ptr::null_mut(), 1, &mut key);
        let tuple = raw::systable_getnext(scan);
        let version = (!tuple.is_null()).then(|| raw::SPI_getvalue(tuple, (*relation).rd_att, VERSION));
        raw::systable_endscan(scan);
        raw::table_close(relation, lock);
        version.filter(|version| !version.is_null()).map(|version| CStr::from_ptr(version))
    }
}

/// Of pg_extension.
const VERSION: i32 = pg_sys::Anum_pg_extension_extversion as i32;

/// Whether the script of an extension is running.
pub fn in_extension_script() -> bool {
    // SAFETY: a plain read of the backend's own variable.
    unsafe { pg_sys::creating_extension }
}
