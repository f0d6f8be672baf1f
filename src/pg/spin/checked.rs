//! What stands in for values behind the spinlock when the table is under the model checker: the checker's own mutex,
//! with the interface that lock_api's has. The spinlock itself is checked in `models.rs`; what it is shown to do there
//! is all that the table needs, and a waiter that blocks takes the checker far fewer steps than one that spins.

use loom::sync::{self, MutexGuard};
use std::time::Duration;

/// A value behind a lock that no one keeps for ever.
pub struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Mutex(sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }

    pub fn try_lock_for(&self, _patience: Duration) -> Option<MutexGuard<'_, T>> {
        Some(self.lock())
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Mutex::new(T::default())
    }
}
