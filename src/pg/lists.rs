//! Lists of constants that count as one in a statement's identifier, as the server itself has it from 18 on.
//!
//! Which lists those are is what 18's `IsSquashableConstantList` says: what stands in the brackets of IN or ARRAY, if it
//! is two or more constants or parameters of the client's, with casts at most around them. Before 18, JumbleQuery walks
//! all elements. So while it does, such lists are taken out of the analysed statement, each replaced by one element that
//! is in no statement; afterwards they are put back. An ERROR in between, for want of memory or stack, ends the analysis,
//! and nobody looks at the statement again.
//!
//! Where the lists are in the source is known only by the key word before them; the text's lexer finds their ends.

use core::ffi::c_int;
use pgrx::pg_sys::{self, List};

/// Where in the source the lists are that count as one; and, if there are any, the parameters outside of them, which are
/// then numbered anew together with the constants. Lists of the server's, that live as long as the jumble state.
#[derive(Clone, Copy)]
pub struct Squashed {
    lists: *mut List,
    params: *mut List,
}

impl Squashed {
    pub const NOTHING: Self = Squashed { lists: core::ptr::null_mut(), params: core::ptr::null_mut() };

    #[inline(always)]
    pub fn is_nothing(&self) -> bool {
        self.lists.is_null()
    }

    /// Where the key words stand that the lists follow, or their opening brackets.
    pub fn lists(&self) -> impl Iterator<Item = c_int> {
        integers(self.lists)
    }

    pub fn params(&self) -> impl Iterator<Item = c_int> {
        integers(self.params)
    }
}

fn integers(list: *mut List) -> impl Iterator<Item = c_int> {
    // SAFETY: null or a live list of integers, as only this module makes them.
    unsafe { cells(list) }.iter().map(|cell| unsafe { cell.int_value })
}

/// # Safety
/// Null, or a list that lives and stays as it is while the result is used.
unsafe fn cells<'a>(list: *mut List) -> &'a [pg_sys::ListCell] {
    if list.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise; the server keeps `length` cells at `elements`.
    unsafe { core::slice::from_raw_parts((*list).elements, (*list).length as usize) }
}

#[cfg(not(feature = "pg18"))]
pub use cutting::cut;

#[cfg(not(feature = "pg18"))]
mod cutting {
    use super::{Squashed, cells};
    use crate::pg::raw;
    use crate::pg::statement::Statement;
    use core::ffi::{c_char, c_void};
    use core::ptr::null_mut;
    use pgrx::pg_sys::{self, List, Node, NodeTag};

    /// A statement's lists, taken out of it.
    pub struct Cut {
        /// The ArrayExpr nodes whose elements they are.
        arrays: *mut List,
        elements: *mut List,
        pub squashed: Squashed,
    }

    /// Takes the lists that count as one out of a statement; `None` if there is none.
    ///
    /// # Safety
    /// A statement that was just analysed, and its source, which is not null.
    pub unsafe fn cut(query: *mut pg_sys::Query, source: *const c_char) -> Option<Cut> {
        // SAFETY: the caller's promise. Whatever the server's functions raise jumps over frames with nothing to drop.
        unsafe {
            let statement = Statement::new(0, source, (*query).stmt_location, (*query).stmt_len);
            let (text, start) = statement.with_space_around();
            let mut found = Found {
                text,
                start,
                partial: null_mut(),
                arrays: null_mut(),
                lists: null_mut(),
                params: null_mut(),
            };
            let given_up = visit(query.cast(), (&raw mut found).cast());
            if given_up || found.arrays.is_null() {
                return None;
            }
            let (mut elements, stand_in) = (null_mut(), stand_in());
            for cell in cells(found.arrays) {
                let array = cell.ptr_value.cast::<pg_sys::ArrayExpr>();
                elements = raw::lappend(elements, (*array).elements.cast());
                (*array).elements = stand_in;
            }
            let squashed = Squashed { lists: found.lists, params: found.params };
            Some(Cut { arrays: found.arrays, elements, squashed })
        }
    }

    impl Cut {
        /// Puts the lists back, in reverse: the same node may be in the statement twice.
        ///
        /// # Safety
        /// The statement is still there.
        pub unsafe fn mend(&self) {
            // SAFETY: the caller's promise; the lists are as long as each other.
            unsafe {
                for (array, elements) in cells(self.arrays).iter().zip(cells(self.elements)).rev() {
                    (*array.ptr_value.cast::<pg_sys::ArrayExpr>()).elements = elements.ptr_value.cast();
                }
            }
        }
    }

    /// A list of one constant of no type.
    unsafe fn stand_in() -> *mut List {
        // SAFETY: memory of the current context, filled in as a Const.
        unsafe {
            let constant = raw::palloc0(size_of::<pg_sys::Const>()).cast::<pg_sys::Const>();
            (*constant).xpr.type_ = NodeTag::T_Const;
            (*constant).location = -1;
            raw::lappend(null_mut(), constant.cast())
        }
    }

    struct Found<'a> {
        /// The statement's, and where that begins in the source.
        text: &'a [u8],
        start: usize,
        /// What IN with columns among its elements was split into; its list is not all of what the brackets hold.
        partial: *mut pg_sys::ScalarArrayOpExpr,
        arrays: *mut List,
        lists: *mut List,
        params: *mut List,
    }

    impl Found<'_> {
        /// # Safety
        /// A live node.
        unsafe fn take(&mut self, array: *mut pg_sys::ArrayExpr, location: i32) {
            // SAFETY: the caller's promise.
            unsafe {
                self.arrays = raw::lappend(self.arrays, array.cast());
                self.lists = raw::lappend_int(self.lists, location);
            }
        }

        /// Whether one of the words stands at a place in the source. None does outside of the statement's text, as the
        /// places of what a module has put into a statement may be.
        fn reads(&self, location: i32, words: &[&[u8]]) -> bool {
            let at = usize::try_from(location).ok().and_then(|at| at.checked_sub(self.start));
            let rest = at.and_then(|at| self.text.get(at..)).unwrap_or_default();
            words.iter().any(|word| rest.get(..word.len()).is_some_and(|is| is.eq_ignore_ascii_case(word)))
        }
    }

    /// Whether the stack is nearly used up: the server's walkers raise an error where it is. There is room for a frame of
    /// theirs yet.
    #[inline(never)]
    fn stack_is_nearly_too_deep() -> bool {
        let room = core::mem::MaybeUninit::<[u8; 2048]>::uninit();
        core::hint::black_box(&room);
        // SAFETY: compares addresses; see `raw`.
        let deep = unsafe { raw::stack_is_too_deep() };
        core::hint::black_box(&room);
        deep
    }

    /// Visits a node and what is below it, as the server's walkers do; whether it gives up.
    ///
    /// # Safety
    /// A live node or null, and a [`Found`].
    unsafe extern "C-unwind" fn visit(node: *mut Node, context: *mut c_void) -> bool {
        // SAFETY: the caller's promise; each node is what its tag says.
        unsafe {
            if node.is_null() {
                return false;
            }
            let found = &mut *context.cast::<Found>();
            match (*node).type_ {
                NodeTag::T_Query => return visit_query(node.cast(), context),
                NodeTag::T_Param => {
                    let param = &*node.cast::<pg_sys::Param>();
                    if param.paramkind == pg_sys::ParamKind::PARAM_EXTERN && param.location >= 0 {
                        found.params = raw::lappend_int(found.params, param.location);
                    }
                    return false;
                }
                NodeTag::T_ArrayExpr => {
                    let array = node.cast::<pg_sys::ArrayExpr>();
                    // the arguments of a variadic function are made an array, too, without brackets
                    let location = (*array).location;
                    if is_squashable_list((*array).elements) && found.reads(location, &[b"[", b"array"]) {
                        found.take(array, location);
                        return false;
                    }
                }
                NodeTag::T_ScalarArrayOpExpr => {
                    let op = node.cast::<pg_sys::ScalarArrayOpExpr>();
                    if let Some((value, array)) = of_in(op)
                        && op != found.partial
                        && is_squashable_list((*array).elements)
                        && found.reads((*op).location, &[b"in", b"not"])
                    {
                        found.take(array, (*op).location);
                        return visit(value, context);
                    }
                }
                NodeTag::T_BoolExpr => {
                    let either = node.cast::<pg_sys::BoolExpr>();
                    let first =
                        cells((*either).args).first().map_or(null_mut(), |c| c.ptr_value.cast::<Node>());
                    if !first.is_null() && (*first).type_ == NodeTag::T_ScalarArrayOpExpr {
                        let op = first.cast::<pg_sys::ScalarArrayOpExpr>();
                        if (*op).location == (*either).location {
                            found.partial = op;
                        }
                    }
                }
                _ => {}
            }
            stack_is_nearly_too_deep() || raw::expression_tree_walker(node, visit, context)
        }
    }

    /// # Safety
    /// As for [`visit`].
    unsafe fn visit_query(query: *mut pg_sys::Query, context: *mut c_void) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            if (*query).utilityStmt.is_null() {
                let flags = pg_sys::QTW_IGNORE_JOINALIASES as i32;
                return raw::query_tree_walker(query, visit, context, flags);
            }
            let utility = (*query).utilityStmt;
            match (*utility).type_ {
                NodeTag::T_ExplainStmt => visit((*utility.cast::<pg_sys::ExplainStmt>()).query, context),
                NodeTag::T_CreateTableAsStmt => {
                    visit((*utility.cast::<pg_sys::CreateTableAsStmt>()).query, context)
                }
                NodeTag::T_DeclareCursorStmt => {
                    visit((*utility.cast::<pg_sys::DeclareCursorStmt>()).query, context)
                }
                // 16 jumbles the call as it was parsed
                #[cfg(feature = "pg17")]
                NodeTag::T_CallStmt => {
                    let call = &*utility.cast::<pg_sys::CallStmt>();
                    visit(call.funcexpr.cast(), context) || visit(call.outargs.cast(), context)
                }
                _ => false,
            }
        }
    }

    /// The value that an IN compares, and the list it compares it with.
    ///
    /// # Safety
    /// A live node.
    unsafe fn of_in(op: *mut pg_sys::ScalarArrayOpExpr) -> Option<(*mut Node, *mut pg_sys::ArrayExpr)> {
        // SAFETY: the caller's promise.
        unsafe {
            let [value, array] = cells((*op).args) else { return None };
            let (value, array) = (value.ptr_value.cast::<Node>(), array.ptr_value.cast::<Node>());
            if (*array).type_ != NodeTag::T_ArrayExpr {
                return None;
            }
            let array = array.cast::<pg_sys::ArrayExpr>();
            // what ARRAY[...] makes has a place of its own
            ((*array).location < 0).then_some((value, array))
        }
    }

    /// # Safety
    /// A live list of expressions, or null.
    unsafe fn is_squashable_list(elements: *mut List) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            let elements = cells(elements);
            elements.len() >= 2 && elements.iter().all(|e| is_squashable(e.ptr_value.cast()))
        }
    }

    /// # Safety
    /// A live expression.
    unsafe fn is_squashable(mut element: *mut Node) -> bool {
        // SAFETY: the caller's promise; each node is what its tag says.
        unsafe {
            loop {
                match (*element).type_ {
                    NodeTag::T_RelabelType => element = (*element.cast::<pg_sys::RelabelType>()).arg.cast(),
                    NodeTag::T_CoerceViaIO => element = (*element.cast::<pg_sys::CoerceViaIO>()).arg.cast(),
                    NodeTag::T_Const => return true,
                    NodeTag::T_Param => {
                        return (*element.cast::<pg_sys::Param>()).paramkind
                            == pg_sys::ParamKind::PARAM_EXTERN;
                    }
                    NodeTag::T_FuncExpr => return is_squashable_cast(element.cast()),
                    _ => return false,
                }
            }
        }
    }

    /// # Safety
    /// A live expression.
    unsafe fn is_squashable_cast(function: *mut pg_sys::FuncExpr) -> bool {
        use pg_sys::CoercionForm::{COERCE_EXPLICIT_CAST, COERCE_IMPLICIT_CAST};
        // SAFETY: the caller's promise.
        unsafe {
            let function = &*function;
            let casts = matches!(function.funcformat, COERCE_IMPLICIT_CAST | COERCE_EXPLICIT_CAST);
            casts
                && function.funcid.to_u32() <= pg_sys::FirstGenbkiObjectId
                && cells(function.args).iter().all(|arg| {
                    let arg = arg.ptr_value.cast::<Node>();
                    (*arg).type_ == NodeTag::T_Const || !raw::stack_is_too_deep() && is_squashable(arg)
                })
        }
    }
}
