//! Small crates with and without circles.

use super::*;
use crate::tree::Tree;

/// A crate `crates/a/b` with these files below its src folder.
fn tree(files: &[(&str, &str)]) -> Tree {
    let tree = Tree::new();
    for (name, text) in files {
        tree.file(&format!("crates/a/b/src/{name}"), text);
    }
    tree
}

fn complaints(tree: &Tree) -> Vec<String> {
    let files = crate::sources::list(tree.root()).expect("list");
    check(tree.root(), &files).expect("check").iter().map(ToString::to_string).collect()
}

/// The only complaint about a crate.
fn complaint(files: &[(&str, &str)]) -> String {
    let found = complaints(&tree(files));
    assert_eq!(found.len(), 1, "{found:#?}");
    found.into_iter().next().unwrap_or_default()
}

fn clean(files: &[(&str, &str)]) {
    assert_eq!(complaints(&tree(files)), Vec::<String>::new());
}

#[test]
fn the_shortest_circle_is_named_with_the_line_of_each_import() {
    let found = complaint(&[
        ("lib.rs", "mod a;\nmod b;\nmod c;\n"),
        ("a.rs", "//! A.\n\nuse crate::b::B;\npub struct A(B);\n"),
        ("b.rs", "pub struct B;\nuse super::c::C;\nfn f(_: C) {}\n"),
        ("c.rs", "pub struct C;\nfn f() -> u32 {\n    crate::a::f() + crate::b::N\n}\n"),
    ]);
    assert!(found.starts_with("crates/a/b/src/b.rs:2: "), "{found}");
    assert!(found.contains("b.rs:2 -> c.rs:3 -> b.rs:"), "{found}");
}

#[test]
fn what_points_one_way_is_fine() {
    clean(&[
        ("lib.rs", "mod a;\nmod b;\nmod c;\npub use a::A;\npub use b::B;\n"),
        ("a.rs", "use crate::B;\nuse crate::c::{self, C as Other};\npub struct A(B, Other, c::D);\n"),
        ("b.rs", "pub struct B(crate::c::C);\n"),
        ("c.rs", "use std::fmt;\npub struct C;\npub struct D;\nimpl fmt::Display for C {}\n"),
    ]);
}

#[test]
fn a_module_and_its_own_children_may_use_each_other() {
    clean(&[
        ("lib.rs", "mod a;\npub struct Error;\npub use a::A;\nfn f() { a::f(); }\n"),
        ("a.rs", "mod x;\nmod y;\npub struct A;\nuse x::X;\nfn f() { x::f(); y::f(); }\nuse crate::Error;\n"),
        ("a/x.rs", "mod deep;\nuse super::A;\npub struct X;\npub fn f() { deep::f() }\n"),
        ("a/x/deep.rs", "use super::super::A;\nuse super::X;\npub fn f() {}\n"),
        ("a/y.rs", "use crate::a::{A, x::X};\nuse crate::Error;\npub fn f() {}\n"),
    ]);
}

#[test]
fn children_of_one_module_may_not_and_neither_may_a_child_through_others() {
    let found = complaint(&[
        ("lib.rs", "mod a;\n"),
        ("a.rs", "mod x;\nmod y;\n"),
        ("a/x.rs", "use super::y::Y;\npub struct X;\n"),
        ("a/y.rs", "pub struct Y;\nuse super::x::X;\n"),
    ]);
    assert!(found.contains("a/x.rs:1 -> a/y.rs:2 -> a/x.rs"), "{found}");
    let found = complaint(&[
        ("lib.rs", "mod a;\nmod b;\n"),
        ("a.rs", "mod x;\npub struct A;\nfn f() { x::f() }\n"),
        ("a/x.rs", "pub fn f(_: crate::b::B) {}\n"),
        ("b.rs", "pub struct B(crate::a::A);\n"),
    ]);
    assert!(found.contains("a.rs:3 -> a/x.rs:1 -> b.rs:1 -> a.rs"), "{found}");
}

#[test]
fn re_exports_neither_make_a_circle_nor_hide_one() {
    // Taken from the crate's root, or from the parent that hands it on, a thing is its own file's.
    clean(&[
        ("lib.rs", "mod a;\nmod b;\npub use a::A;\npub use b::B;\n"),
        ("a.rs", "mod x;\npub(crate) use x::X;\npub struct A(crate::B);\n"),
        ("a/x.rs", "pub struct X;\n"),
        ("b.rs", "use crate::a::X;\npub struct B(X);\n"),
    ]);
    let found = complaint(&[
        ("lib.rs", "mod a;\nmod b;\nmod face;\npub use a::A;\npub use b::*;\n"),
        ("face.rs", "pub use crate::a::A as First;\n"),
        ("a.rs", "pub struct A(crate::B);\n"),
        ("b.rs", "pub struct B(crate::face::First);\n"),
    ]);
    assert!(found.contains("a.rs:1 -> b.rs:1 -> a.rs"), "{found}");
}

#[test]
fn all_names_of_a_module_are_those_that_are_used() {
    clean(&[
        ("lib.rs", "mod a;\nmod b;\nmod c;\npub use a::*;\npub use b::*;\npub use c::*;\n"),
        ("a.rs", "use crate::*;\npub struct A(B);\n"),
        ("b.rs", "use crate::*;\npub struct B(C);\n"),
        ("c.rs", "pub struct C;\n"),
    ]);
    let found = complaint(&[
        ("lib.rs", "mod a;\nmod b;\npub use a::*;\npub use b::*;\n"),
        ("a.rs", "use crate::*;\npub struct A(B);\n"),
        ("b.rs", "\nuse crate::*;\npub struct B(Box<A>);\n"),
    ]);
    assert!(found.contains("a.rs:1 -> b.rs:2 -> a.rs"), "{found}");
}

#[test]
fn tests_comments_and_text_import_nothing() {
    let text = "// use crate::a::A;\n/* crate::a::A /* nested */ */\n/// See [`crate::a::A`].\npub struct B;\n\
                const T: &str = r#\"crate::a::A\"#;\n#[cfg(test)]\nuse crate::a::A;\n\
                impl B {\n    #[cfg(test)]\n    fn f(_: crate::a::A) { crate::a::f(); }\n    fn g(&self) { #[cfg(test)]\n crate::a::f(); }\n}\n\
                #[cfg(all(test, unix))]\nmod quick {\n    use crate::a::A;\n}\n\
                #[test]\nfn t() { crate::a::f() }\nmod tests {\n    use crate::a::A;\n}\n#[cfg(test)]\nmod more;\n";
    clean(&[
        ("lib.rs", "mod a;\nmod b;\n"),
        ("a.rs", "use crate::b::B;\npub struct A(B);\n"),
        ("b.rs", text),
        ("b/more.rs", "use crate::a::A;\n"),
        ("b/tests.rs", "use crate::a::A;\n"),
    ]);
    let found = complaint(&[
        ("lib.rs", "mod a;\nmod b;\n"),
        ("a.rs", "use crate::b::B;\npub struct A(B);\n"),
        ("b.rs", "#[cfg(not(test))]\nuse crate::a::A;\npub struct B;\n"),
    ]);
    assert!(found.contains("b.rs:2 -> a.rs"), "{found}");
}

#[test]
fn paths_are_found_in_macros_attributes_and_bodies_and_through_modules_in_place() {
    for body in [
        "fn f() { println!(\"{}\", crate::a::N); }",
        "#[serde(with = \"crate::a::text\")]\nstruct S;",
        "fn f() { use super::a as other; other::f(); }",
        "mod inside { fn f() { super::super::a::f() } }",
        "use crate::{a::{self, A}};",
        "macro_rules! m { () => { $crate::a::N } }",
        "fn f<T>() -> impl Iterator + use<T> { <crate::a::A as Trait>::f() }",
    ] {
        let found = complaint(&[
            ("lib.rs", "mod a;\nmod b;\n"),
            ("a.rs", "use crate::b::B;\npub struct A(B);\n"),
            ("b.rs", body),
        ]);
        assert!(found.contains("a.rs:1 -> b.rs:"), "{body}: {found}");
    }
}

#[test]
fn other_crates_of_the_same_name_and_names_that_stand_for_themselves_are_none_of_ours() {
    clean(&[
        ("lib.rs", "mod copy;\nmod unit;\n"),
        (
            "copy.rs",
            "use crate::unit::Unit;\nuse defs::copy::List;\nuse tokio;\npub use copy as it;\nuse it as copy;\n",
        ),
        (
            "unit.rs",
            "use other::copy::List;\nuse ::copy::List as More;\npub struct Unit;\nfn f() { self.copy.list::<u8>(); }\n",
        ),
    ]);
}

#[test]
fn listed_circles_may_only_shrink() {
    let files = [
        ("lib.rs", "mod a;\nmod b;\nmod c;\n"),
        ("a.rs", "use crate::b::B;\n"),
        ("b.rs", "use crate::c::C;\n"),
        ("c.rs", "use crate::a::A;\n"),
    ];
    let tree = tree(&files);
    assert_eq!(complaints(&tree).len(), 1);
    tree.file("xtask/keep.md", "");
    bless(tree.root(), &crate::sources::list(tree.root()).expect("list")).expect("bless");
    let list = std::fs::read_to_string(tree.root().join(RATCHET)).expect("the list");
    assert!(list.ends_with("\ncrates/a/b 3\n"), "{list}");
    assert_eq!(complaints(&tree), Vec::<String>::new());
    tree.file("crates/a/b/src/b.rs", "use crate::a::A;\n");
    let found = complaints(&tree);
    assert!(
        found.len() == 1 && found[0].contains("[2] instead of [3]"),
        "what is gone does not come back: {found:?}"
    );
    tree.file("crates/a/b/src/b.rs", "use crate::c::C;\n");
    assert_eq!(complaints(&tree), Vec::<String>::new());
    tree.file("crates/a/b/src/lib.rs", "mod a;\nmod b;\nmod c;\nmod d;\n");
    tree.file("crates/a/b/src/b.rs", "use crate::c::C;\nuse crate::d::D;\n");
    tree.file("crates/a/b/src/d.rs", "use crate::b::B;\n");
    assert_eq!(complaints(&tree).len(), 1, "a fourth is more");
    tree.file("crates/a/b/src/b.rs", "\n");
    let found = complaints(&tree);
    assert!(found.len() == 1 && found[0].contains("take it off"), "{found:?}");
}

#[test]
fn each_root_of_a_crate_is_read() {
    let tree = Tree::new();
    tree.file("bin/x/src/main.rs", "mod a;\nmod b;\n");
    tree.file("bin/x/src/a/mod.rs", "use crate::b::B;\n");
    tree.file("bin/x/src/b.rs", "use crate::a::A;\n");
    tree.file("bin/x/src/bin/y.rs", "#[path = \"../c.rs\"]\nmod c;\nmod d;\n");
    tree.file("bin/x/src/c.rs", "use crate::d::D;\n");
    tree.file("bin/x/src/bin/d.rs", "use crate::c::C;\n");
    assert_eq!(complaints(&tree).len(), 2);
}
