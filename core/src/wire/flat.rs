//! Deserializes vectors of an enum inside that same enum without nesting.
//!
//! Owns the bound on recursion: a multi holds operations, but no other multi. Must not know what
//! the operations are. The encoding is the same as without the bound.
//!
//! Without the bound, a frame of 400 kB may nest 200,000 levels, and its decoder overflows the
//! stack.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::U32Deserializer;
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, SeqAccess,
    Visitor,
};

/// Variants that hold a vector of their own enum.
const NESTING: [&str; 2] = ["Multi", "MultiRead"];
/// Most operations of one multi; no client's frame holds more. An operation takes a hundred bytes
/// of memory, but as little as one byte of a frame.
const PARTS_MAX: usize = 1 << 20;
/// Capacity allocated before the first operation is read, so that a large count alone costs
/// little.
const ROOM_MAX: usize = 1 << 10;

/// Reads the vector; for `#[serde(deserialize_with)]`.
pub(crate) fn parts<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    deserializer.deserialize_seq(Parts(PhantomData))
}

struct Parts<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Parts<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the operations of a multi")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Vec<T>, A::Error> {
        let mut read = Vec::with_capacity(parts.size_hint().unwrap_or(0).min(ROOM_MAX));
        while let Some(Part(part)) = parts.next_element()? {
            if read.len() == PARTS_MAX {
                let what = format!("a multi of more than {PARTS_MAX} operations");
                return Err(de::Error::custom(what));
            }
            read.push(part);
        }
        Ok(read)
    }
}

/// An element: any variant except the nesting ones.
struct Part<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Part<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(Flat(deserializer)).map(Part)
    }
}

/// A deserializer of enums that rejects the nesting variants.
struct Flat<D>(D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Flat<D> {
    type Error = D::Error;

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_enum(name, variants, FlatVisitor { variants, visitor })
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, D::Error> {
        Err(de::Error::custom("the parts of a multi are an enum"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

struct FlatVisitor<V> {
    variants: &'static [&'static str],
    visitor: V,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for FlatVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_enum(FlatAccess { variants: self.variants, access })
    }
}

struct FlatAccess<A> {
    variants: &'static [&'static str],
    access: A,
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for FlatAccess<A> {
    type Error = A::Error;
    type Variant = A::Variant;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, A::Variant), A::Error> {
        // Postcard encodes a variant as its position.
        let (position, variant) = self.access.variant::<u32>()?;
        let name = usize::try_from(position).ok().and_then(|position| self.variants.get(position));
        if name.is_some_and(|name| NESTING.contains(name)) {
            return Err(de::Error::custom("a multi within a multi"));
        }
        let position: U32Deserializer<A::Error> = position.into_deserializer();
        Ok((seed.deserialize(position)?, variant))
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize;
    use serde::de::DeserializeOwned;

    use super::super::Request;

    fn read<T: DeserializeOwned>(value: &impl Serialize) -> Result<T, postcard::Error> {
        postcard::from_bytes(&postcard::to_allocvec(value).expect("plain data encodes"))
    }

    /// MULTI-01.
    #[test]
    fn multi_within_multi_is_refused() {
        let delete = || Request::Delete { path: "/n".into(), version: -1 };
        let flat = Request::Multi(vec![delete(), delete()]);
        assert_eq!(read(&flat), Ok(flat.clone()));
        for nested in [
            Request::Multi(vec![delete(), flat.clone()]),
            Request::Multi(vec![Request::MultiRead(vec![])]),
            Request::MultiRead(vec![Request::MultiRead(vec![])]),
        ] {
            assert!(read::<Request>(&nested).is_err(), "{nested}");
        }
    }

    /// 200,000 levels overflow the stack of a decoder that recurses; a level is the variant and a
    /// count of one.
    #[test]
    fn nested_multi_is_rejected_without_recursion() {
        for multi in [Request::Multi(vec![]), Request::MultiRead(vec![])] {
            let position = postcard::to_allocvec(&multi).expect("plain data encodes")[0];
            assert!(postcard::from_bytes::<Request>(&[position, 1].repeat(200_000)).is_err());
        }
    }
}
