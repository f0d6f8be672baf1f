//! Callbacks at the end of transactions and at both ends of subtransactions.

use super::local::Local;
use super::{parse, raw};
use crate::lock_rules;
use core::ffi::c_void;
use pgrx::pg_sys;

/// What is done then. None of it may raise or unwind.
pub trait TransactionHooks {
    /// A transaction is about to be committed or prepared; its deferred triggers have run.
    fn committing();
    /// A transaction was aborted: by an error, a ROLLBACK, or from within a procedure.
    fn aborted();
    fn subtransaction_begun(id: u32);
    fn subtransaction_committed(id: u32);
    fn subtransaction_aborted(id: u32);
}

/// Has `H` told of every (sub)transaction. Once, while the library is being preloaded; backends inherit it.
pub fn install<H: TransactionHooks>() {
    // SAFETY: registers functions with no argument, for the life of the process.
    unsafe {
        pg_sys::RegisterXactCallback(Some(transaction::<H>), core::ptr::null_mut());
        pg_sys::RegisterSubXactCallback(Some(subtransaction::<H>), core::ptr::null_mut());
    }
}

unsafe extern "C-unwind" fn transaction<H: TransactionHooks>(
    event: pg_sys::XactEvent::Type,
    _arg: *mut c_void,
) {
    lock_rules::ending();
    match event {
        pg_sys::XactEvent::XACT_EVENT_PRE_COMMIT | pg_sys::XactEvent::XACT_EVENT_PRE_PREPARE => {
            H::committing()
        }
        pg_sys::XactEvent::XACT_EVENT_ABORT => {
            parse::put_back();
            H::aborted();
        }
        _ => {}
    }
}

unsafe extern "C-unwind" fn subtransaction<H: TransactionHooks>(
    event: pg_sys::SubXactEvent::Type,
    id: pg_sys::SubTransactionId,
    _parent: pg_sys::SubTransactionId,
    _arg: *mut c_void,
) {
    lock_rules::ending();
    match event {
        pg_sys::SubXactEvent::SUBXACT_EVENT_START_SUB => H::subtransaction_begun(id),
        pg_sys::SubXactEvent::SUBXACT_EVENT_COMMIT_SUB => H::subtransaction_committed(id),
        pg_sys::SubXactEvent::SUBXACT_EVENT_ABORT_SUB => {
            parse::put_back();
            H::subtransaction_aborted(id);
        }
        _ => {}
    }
}

/// What is done once it is certain how a (sub)transaction ended, for those few backends that want to know. None of it
/// may raise or unwind.
pub trait TransactionEnd {
    /// The transaction was committed or prepared.
    fn committed();
    fn aborted();
    fn subtransaction_committed(id: u32, parent: u32);
    fn subtransaction_aborted(id: u32);
}

/// Has `E` told of the end of this backend's (sub)transactions, from the current ones on. From an SQL function. There is
/// one such `E`.
pub fn watch<E: TransactionEnd>() {
    static WATCHED: Local<bool> = Local::new(false);
    if !WATCHED.get() {
        // SAFETY: as in `install`. Raises when there is no memory: plain frames; what was registered then is told of
        // nothing, or twice at a later attempt, which does no harm.
        unsafe {
            raw::RegisterXactCallback(Some(transaction_end::<E>), core::ptr::null_mut());
            raw::RegisterSubXactCallback(Some(subtransaction_end::<E>), core::ptr::null_mut());
        }
        WATCHED.set(true);
    }
}

unsafe extern "C-unwind" fn transaction_end<E: TransactionEnd>(
    event: pg_sys::XactEvent::Type,
    _arg: *mut c_void,
) {
    match event {
        pg_sys::XactEvent::XACT_EVENT_COMMIT | pg_sys::XactEvent::XACT_EVENT_PREPARE => E::committed(),
        pg_sys::XactEvent::XACT_EVENT_ABORT => E::aborted(),
        _ => {}
    }
}

unsafe extern "C-unwind" fn subtransaction_end<E: TransactionEnd>(
    event: pg_sys::SubXactEvent::Type,
    id: pg_sys::SubTransactionId,
    parent: pg_sys::SubTransactionId,
    _arg: *mut c_void,
) {
    match event {
        pg_sys::SubXactEvent::SUBXACT_EVENT_COMMIT_SUB => E::subtransaction_committed(id, parent),
        pg_sys::SubXactEvent::SUBXACT_EVENT_ABORT_SUB => E::subtransaction_aborted(id),
        _ => {}
    }
}
