//! What identifies an entry.

/// One entry's identity, the same as pg_stat_statements': executions that agree in all four are counted together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(C)]
pub struct Key {
    /// The server's query identifier; 0 is never stored.
    pub queryid: u64,
    /// The role that was current when the statement started.
    pub userid: u32,
    /// The database.
    pub dbid: u32,
    /// Whether no other statement was running around it.
    pub toplevel: bool,
}

impl Key {
    /// 64 well-mixed bits (the query identifier is a hash already; the rest is folded in and the sum multiplied by
    /// 2^64 over the golden ratio, Knuth's multiplicative hashing).
    #[inline]
    pub fn hash(&self) -> u64 {
        let who = u64::from(self.userid) << 32 | u64::from(self.dbid);
        let h = self.queryid ^ who.wrapping_mul(0xff51_afd7_ed55_8ccd) ^ u64::from(self.toplevel);
        (h ^ h >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_changes_the_hash() {
        let k = Key { queryid: 7, userid: 10, dbid: 5, toplevel: true };
        for other in [
            Key { queryid: 8, ..k },
            Key { userid: 11, ..k },
            Key { dbid: 6, ..k },
            Key { toplevel: false, ..k },
        ] {
            assert_ne!(k.hash(), other.hash());
        }
    }
}
