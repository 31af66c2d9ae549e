//! How the specification's tables become types: structures of fixed fields, sets of bits, and values with names.
//!
//! Each macro makes the same few things for every table, so that a structure is as long here as it is in the
//! specification and its size is checked against it when it is compiled. Protocols that SMB carries use them, too.

/// A structure of little-endian fields without padding of its own: a type with [`Wire`](crate::wire::Wire).
///
/// A field named `_` is on the wire but not in the type (reserved bytes, a structure size). The number in brackets is
/// the size that the specification gives; another sum of fields does not compile.
#[macro_export]
macro_rules! wire_struct {
    ($(#[$meta:meta])* pub struct $name:ident [$size:literal] { $($body:tt)* }) => {
        $crate::wire_struct!(@fields { $(#[$meta])* $name $size } {} {} { $($body)* });
    };
    (@fields $head:tt {$($named:tt)*} {$($all:tt)*} { $(#[$m:meta])* _: $t:ty, $($rest:tt)* }) => {
        $crate::wire_struct!(@fields $head {$($named)*} {$($all)* [_ $t]} { $($rest)* });
    };
    (@fields $head:tt {$($named:tt)*} {$($all:tt)*} { $(#[$m:meta])* $f:ident: $t:ty, $($rest:tt)* }) => {
        $crate::wire_struct!(@fields $head {$($named)* $(#[$m])* $f: $t,} {$($all)* [$f $t]} { $($rest)* });
    };
    (@fields { $(#[$meta:meta])* $name:ident $size:literal }
        {$($(#[$fm:meta])* $f:ident: $ft:ty,)*} {$([$n:tt $t:ty])*} {}) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$fm])* pub $f: $ft,)* }

        impl $crate::wire::Wire for $name {
            const SIZE: usize = 0 $(+ <$t as $crate::wire::Wire>::SIZE)*;

            fn take(reader: &mut $crate::wire::Reader<'_>) -> Result<Self, $crate::wire::DecodeError> {
                $($crate::wire_struct!(@take reader $n $t);)*
                Ok(Self { $($f),* })
            }

            fn put(&self, out: &mut Vec<u8>) {
                $($crate::wire_struct!(@put self out $n $t);)*
            }
        }

        const _: () = assert!(<$name as $crate::wire::Wire>::SIZE == $size);
    };
    (@take $reader:ident _ $t:ty) => { <$t as $crate::wire::Wire>::take($reader)?; };
    (@take $reader:ident $f:ident $t:ty) => { let $f = <$t as $crate::wire::Wire>::take($reader)?; };
    (@put $this:ident $out:ident _ $t:ty) => {
        $crate::wire::Wire::put(&<$t as Default>::default(), $out)
    };
    (@put $this:ident $out:ident $f:ident $t:ty) => { $crate::wire::Wire::put(&$this.$f, $out) };
}

/// A set of bits with names. Bits without a name are kept, so that what is decoded can be encoded again.
macro_rules! bit_flags {
    ($(#[$meta:meta])* pub struct $name:ident($t:ty) { $($(#[$vm:meta])* $v:ident = $bits:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $t);

        #[allow(missing_docs, reason = "the names are the specification's")]
        impl $name {
            $($(#[$vm])* pub const $v: Self = Self($bits);)*
        }

        impl $name {
            /// No bit.
            pub const NONE: Self = Self(0);
            /// Every bit that has a name.
            pub const NAMED: &'static [Self] = &[$(Self::$v),*];

            /// Whether all bits of `other` are here.
            #[must_use]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Whether any bit of `other` is here.
            #[must_use]
            pub const fn intersects(self, other: Self) -> bool {
                self.0 & other.0 != 0
            }

            /// The bits of both.
            #[must_use]
            pub const fn union(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// These bits without those of `other`.
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }

            /// Whether there is no bit.
            #[must_use]
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }
        }

        impl std::ops::BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                self.union(other)
            }
        }

        impl std::ops::BitOrAssign for $name {
            fn bitor_assign(&mut self, other: Self) {
                *self = self.union(other);
            }
        }

        impl std::ops::BitAnd for $name {
            type Output = Self;
            fn bitand(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $crate::macros::show_bits(f, u64::from(self.0), &[$((stringify!($v), $bits)),*])
            }
        }

        impl $crate::wire::Wire for $name {
            const SIZE: usize = <$t as $crate::wire::Wire>::SIZE;
            fn take(reader: &mut byte_codec::Reader<'_>) -> Result<Self, byte_codec::DecodeError> {
                <$t as $crate::wire::Wire>::take(reader).map(Self)
            }
            fn put(&self, out: &mut Vec<u8>) {
                $crate::wire::Wire::put(&self.0, out);
            }
        }
    };
}

/// A number of which some values have names. Values without one are kept: what they deserve, the server decides.
#[macro_export]
macro_rules! named_values {
    ($(#[$meta:meta])* pub struct $name:ident($t:ty) { $($(#[$vm:meta])* $v:ident = $value:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $t);

        #[allow(missing_docs, reason = "the names are the specification's")]
        impl $name {
            $($(#[$vm])* pub const $v: Self = Self($value);)*
        }

        impl $name {
            /// Every value that has a name.
            pub const NAMED: &'static [Self] = &[$(Self::$v),*];

            /// The specification's name for this value.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($v)),)*
                    _ => None,
                }
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "{:#x}", self.0),
                }
            }
        }

        impl $crate::wire::Wire for $name {
            const SIZE: usize = <$t as $crate::wire::Wire>::SIZE;
            fn take(reader: &mut $crate::wire::Reader<'_>) -> Result<Self, $crate::wire::DecodeError> {
                <$t as $crate::wire::Wire>::take(reader).map(Self)
            }
            fn put(&self, out: &mut Vec<u8>) {
                $crate::wire::Wire::put(&self.0, out);
            }
        }
    };
}

/// Writes the names of the bits that are set, and what has no name as a number.
pub(crate) fn show_bits(
    f: &mut std::fmt::Formatter<'_>,
    mut bits: u64,
    names: &[(&str, u64)],
) -> std::fmt::Result {
    if bits == 0 {
        return f.write_str("0");
    }
    let mut first = true;
    for (name, value) in names {
        if *value != 0 && bits & value == *value {
            bits &= !value;
            write!(f, "{}{name}", if first { "" } else { "|" })?;
            first = false;
        }
    }
    match (bits, first) {
        (0, _) => Ok(()),
        (rest, true) => write!(f, "{rest:#x}"),
        (rest, false) => write!(f, "|{rest:#x}"),
    }
}
