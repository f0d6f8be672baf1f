//! Settings that are read on the hot path, and what is to be told when they change.

use core::ffi::{CStr, c_void};
use pgrx::guc::{GucContext, GucEnum, GucFlags, GucRegistry, GucSetting};
use pgrx::pg_sys;

/// Is told a setting's new value, just before the setting has it. May not raise or unwind.
pub trait Assigned<T> {
    fn assigned(value: T);
}

unsafe extern "C-unwind" fn real_assigned<A: Assigned<f64>>(value: f64, _extra: *mut c_void) {
    A::assigned(value);
}

unsafe extern "C-unwind" fn choice_assigned<A: Assigned<i32>>(value: i32, _extra: *mut c_void) {
    A::assigned(value);
}

/// Defines a number that superusers may set, from `min` to `max`.
pub fn define_real<A: Assigned<f64>>(
    name: &'static CStr,
    short: &'static CStr,
    long: &'static CStr,
    setting: &'static GucSetting<f64>,
    min: f64,
    max: f64,
) {
    let (context, flags) = (GucContext::Suset, GucFlags::default());
    // the hook neither raises nor panics, as `Assigned` demands
    GucRegistry::define_float_guc_with_hooks(
        name,
        short,
        long,
        setting,
        min,
        max,
        context,
        flags,
        None,
        Some(real_assigned::<A>),
        None,
    );
}

unsafe extern "C-unwind" fn int_assigned<A: Assigned<i32>>(value: i32, _extra: *mut c_void) {
    A::assigned(value);
}

/// Defines a time in ms that superusers may set, from `min`.
pub fn define_ms<A: Assigned<i32>>(
    name: &'static CStr,
    short: &'static CStr,
    long: &'static CStr,
    setting: &'static GucSetting<i32>,
    min: i32,
) {
    let (context, flags) = (GucContext::Suset, GucFlags::UNIT_MS);
    // SAFETY: the hook neither raises nor panics, as `Assigned` demands.
    unsafe {
        GucRegistry::define_int_guc_with_hooks(
            name,
            short,
            long,
            setting,
            min,
            i32::MAX,
            context,
            flags,
            None,
            Some(int_assigned::<A>),
            None,
        );
    }
}

/// Says whether a setting may have a value, and if not, why and what to do. May not raise or unwind.
pub trait Checked {
    fn refused(_value: i32) -> Option<(&'static CStr, &'static CStr)> {
        None
    }
}

unsafe extern "C-unwind" fn choice_checked<C: Checked>(
    value: *mut i32,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: the server hands in the value to be checked, and clears the strings with the error's state; it does not
    // free them one by one.
    unsafe {
        match C::refused(*value) {
            None => true,
            Some((detail, hint)) => {
                pg_sys::GUC_check_errdetail_string = detail.as_ptr().cast_mut();
                pg_sys::GUC_check_errhint_string = hint.as_ptr().cast_mut();
                false
            }
        }
    }
}

/// Defines a choice that superusers may set.
pub fn define_choice<A: Assigned<i32> + Checked, T: GucEnum>(
    name: &'static CStr,
    short: &'static CStr,
    long: &'static CStr,
    setting: &'static GucSetting<T>,
) {
    let (context, flags) = (GucContext::Suset, GucFlags::default());
    // SAFETY: the hooks neither raise nor panic, as `Checked` and `Assigned` demand.
    unsafe {
        GucRegistry::define_enum_guc_with_hooks(
            name,
            short,
            long,
            setting,
            context,
            flags,
            Some(choice_checked::<A>),
            Some(choice_assigned::<A>),
            None,
        );
    }
}

/// A number's current value, without the thread check of `GucSetting::get`.
#[inline(always)]
pub fn real(setting: &GucSetting<f64>) -> f64 {
    // SAFETY: the setting's own storage, which the server changes on the backend's main thread only, and not meanwhile.
    unsafe { *setting.as_ptr() }
}

/// Likewise.
#[inline(always)]
pub fn int(setting: &GucSetting<i32>) -> i32 {
    // SAFETY: as above.
    unsafe { *setting.as_ptr() }
}

/// A switch's current value, likewise.
#[inline(always)]
pub fn boolean(setting: &GucSetting<bool>) -> bool {
    // SAFETY: as above.
    unsafe { *setting.as_ptr() }
}

/// The current choice's number, likewise.
#[inline(always)]
pub fn choice<T: GucEnum>(setting: &GucSetting<T>) -> i32 {
    // SAFETY: as above.
    unsafe { *setting.as_ptr() }
}

/// Makes unknown settings with our prefix an error. After all are defined.
pub fn reserve_prefix() {
    // SAFETY: a constant C string; called while the library is being preloaded.
    unsafe { pg_sys::MarkGUCPrefixReserved(c"pgss_rs".as_ptr()) };
}
