//! Utility statements in whose identifiers a value or a name does not count, as the server itself has it from 18 on:
//! what SET sets a parameter to, savepoints, two-phase transactions, and the prepared statements that DEALLOCATE names.
//!
//! Before, the server's identifiers of these statements have them in it: on 15 they are hashes of the text. Here they
//! get identifiers of their own, by what 18's jumble looks at.

use crate::normalize::Value;

/// A statement's identifier without its value, and where in the source that stands.
pub struct Collapsed {
    pub queryid: u64,
    pub value: Value,
}

#[cfg(feature = "pg18")]
pub use native::collapsed;
#[cfg(not(feature = "pg18"))]
pub use own::collapsed;

#[cfg(feature = "pg18")]
mod native {
    use super::Collapsed;
    use crate::pg::statement::Statement;
    use pgrx::pg_sys;

    /// # Safety
    /// None, on 18.
    pub unsafe fn collapsed(_utility: *mut pg_sys::Node, _statement: &Statement) -> Option<Collapsed> {
        None
    }
}

#[cfg(not(feature = "pg18"))]
mod own {
    use super::Collapsed;
    use crate::normalize::{Value, word_before};
    use crate::pg::raw;
    use crate::pg::statement::Statement;
    use core::ffi::{CStr, c_char};
    use pgrx::pg_sys::{self, Node, NodeTag};

    /// The identifier of a statement in which a value does not count; `None` for all others.
    ///
    /// # Safety
    /// A live utility statement, as parsed, and the statement that it is.
    pub unsafe fn collapsed(utility: *mut Node, statement: &Statement) -> Option<Collapsed> {
        // SAFETY: the caller's promise; each node is what its tag says.
        unsafe {
            match (*utility).type_ {
                // 17 leaves out these two itself
                #[cfg(not(feature = "pg17"))]
                NodeTag::T_TransactionStmt => Some(named(transaction(utility.cast())?)),
                #[cfg(not(feature = "pg17"))]
                NodeTag::T_DeallocateStmt => {
                    let all = (*utility.cast::<pg_sys::DeallocateStmt>()).name.is_null();
                    if all { None } else { Some(named(b"DEALLOCATE")) }
                }
                NodeTag::T_VariableSetStmt => {
                    let set = utility.cast::<pg_sys::VariableSetStmt>();
                    setting(Id::of(if (*set).is_local { b"SET LOCAL" } else { b"SET" }), set, statement)
                }
                NodeTag::T_AlterSystemStmt => {
                    let alter = &*utility.cast::<pg_sys::AlterSystemStmt>();
                    setting(Id::of(b"ALTER SYSTEM"), alter.setstmt, statement)
                }
                NodeTag::T_AlterDatabaseSetStmt => {
                    let alter = &*utility.cast::<pg_sys::AlterDatabaseSetStmt>();
                    setting(Id::of(b"ALTER DATABASE").and_name(alter.dbname), alter.setstmt, statement)
                }
                NodeTag::T_AlterRoleSetStmt => {
                    let alter = &*utility.cast::<pg_sys::AlterRoleSetStmt>();
                    let mut id = Id::of(b"ALTER ROLE").and_name(alter.database);
                    if let Some(role) = alter.role.as_ref() {
                        id = id.and(&role.roletype.to_ne_bytes()).and_name(role.rolename);
                    }
                    setting(id, alter.setstmt, statement)
                }
                _ => None,
            }
        }
    }

    #[cfg(not(feature = "pg17"))]
    fn named(command: &[u8]) -> Collapsed {
        Collapsed { queryid: Id::of(command).finish(), value: Value::LastName }
    }

    /// The command of a transaction statement that names something.
    ///
    /// # Safety
    /// A live node.
    #[cfg(not(feature = "pg17"))]
    unsafe fn transaction(statement: *mut pg_sys::TransactionStmt) -> Option<&'static [u8]> {
        use pg_sys::TransactionStmtKind::*;
        // SAFETY: the caller's promise.
        match unsafe { (*statement).kind } {
            TRANS_STMT_SAVEPOINT => Some(b"SAVEPOINT"),
            TRANS_STMT_RELEASE => Some(b"RELEASE"),
            TRANS_STMT_ROLLBACK_TO => Some(b"ROLLBACK TO"),
            TRANS_STMT_PREPARE => Some(b"PREPARE TRANSACTION"),
            TRANS_STMT_COMMIT_PREPARED => Some(b"COMMIT PREPARED"),
            TRANS_STMT_ROLLBACK_PREPARED => Some(b"ROLLBACK PREPARED"),
            _ => None,
        }
    }

    /// A parameter that is set to a value. Those of SET TIME ZONE and SET XML OPTION count; so do TRANSACTION's modes.
    ///
    /// # Safety
    /// As for [`collapsed`].
    unsafe fn setting(id: Id, set: *mut pg_sys::VariableSetStmt, statement: &Statement) -> Option<Collapsed> {
        use pg_sys::VariableSetKind::{VAR_SET_MULTI, VAR_SET_VALUE};
        // SAFETY: the caller's promise.
        unsafe {
            let set = set.as_ref()?;
            let name = if set.name.is_null() { c"" } else { CStr::from_ptr(set.name) };
            let snapshot = set.kind == VAR_SET_MULTI && name == c"TRANSACTION SNAPSHOT";
            let first = set.args.as_ref().map(|args| (*args.elements).ptr_value.cast::<Node>())?;
            if !(snapshot || set.kind == VAR_SET_VALUE) || (*first).type_ != NodeTag::T_A_Const {
                return None;
            }
            let at = usize::try_from((*first.cast::<pg_sys::A_Const>()).location).ok()?;
            if name == c"timezone" || name == c"xmloption" {
                let (text, start) = statement.text();
                let before = word_before(text, at.checked_sub(start)?);
                if [&b"zone"[..], b"option"].iter().any(|w| before.eq_ignore_ascii_case(w)) {
                    return None;
                }
            }
            Some(Collapsed { queryid: id.and(name.to_bytes_with_nul()).finish(), value: Value::At(at) })
        }
    }

    /// A hash that is the same on 15, 16 and 17.
    struct Id(u64);

    impl Id {
        fn of(command: &[u8]) -> Self {
            Id(0).and(command)
        }

        fn and(self, bytes: &[u8]) -> Self {
            // SAFETY: reads so many bytes; see `raw`.
            Id(unsafe { raw::hash_bytes_extended(bytes.as_ptr(), bytes.len() as i32, self.0) })
        }

        /// # Safety
        /// A C string, or null.
        unsafe fn and_name(self, name: *const c_char) -> Self {
            // SAFETY: the caller's promise.
            self.and(if name.is_null() { b"" } else { unsafe { CStr::from_ptr(name) }.to_bytes_with_nul() })
        }

        fn finish(self) -> u64 {
            // as the server, for a utility statement
            if self.0 == 0 { 2 } else { self.0 }
        }
    }
}
