//! The primitives of crypto.h, from Zig's standard library, as C functions. They allocate nothing, call only the C
//! library's memcpy and memset, and keep no state.
const std = @import("std");
const X25519 = std.crypto.dh.X25519;
const Ed25519 = std.crypto.sign.Ed25519;
const Hkdf = std.crypto.kdf.hkdf.HkdfSha256;
const Aead = std.crypto.aead.chacha_poly.ChaCha20Poly1305;

// What cannot happen ends the process and prints nothing: messages would need all of std.debug.
pub const panic = std.debug.no_panic;

const Secret = *const [32]u8;
const PublicKey = extern struct { bytes: [32]u8 };
const Signature = extern struct { bytes: [64]u8 };
const Bytes = extern struct {
    data: ?[*]const u8,
    size: usize,

    fn slice(self: Bytes) []const u8 {
        return if (self.data) |first| first[0..self.size] else &.{};
    }
};

// For C++ in the same library: not among the names that it exports.
const functions = .{ "x25519_public", "x25519_shared", "ed25519_public", "ed25519_sign", "ed25519_verify" } ++
    .{ "hkdf_sha256", "seal", "open_sealed" };
comptime {
    for (functions) |name| @export(&@field(@This(), name), .{ .name = name, .visibility = .hidden });
}

const nonce: [12]u8 = @splat(0);

fn x25519_public(secret: Secret) callconv(.c) PublicKey {
    return .{ .bytes = X25519.recoverPublicKey(secret.*) };
}

fn x25519_shared(secret: Secret, other: *const PublicKey, shared: *[32]u8) callconv(.c) bool {
    shared.* = X25519.scalarmult(secret.*, other.bytes) catch { // the result is 0
        shared.* = @splat(0);
        return false;
    };
    return true;
}

fn pairOf(seed: Secret) Ed25519.KeyPair {
    return Ed25519.KeyPair.generateDeterministic(seed.*) catch @trap(); // a clamped scalar times the base is never 0
}

fn ed25519_public(seed: Secret) callconv(.c) PublicKey {
    var pair = pairOf(seed);
    defer std.crypto.secureZero(u8, &pair.secret_key.bytes);
    return .{ .bytes = pair.public_key.toBytes() };
}

fn ed25519_sign(seed: Secret, message: Bytes) callconv(.c) Signature {
    var pair = pairOf(seed);
    defer std.crypto.secureZero(u8, &pair.secret_key.bytes);
    const signed = pair.sign(message.slice(), null) catch @trap(); // the nonce is 0: one chance in 2^252
    return .{ .bytes = signed.toBytes() };
}

fn ed25519_verify(public: *const PublicKey, message: Bytes, signature: *const Signature) callconv(.c) bool {
    const key = Ed25519.PublicKey.fromBytes(public.bytes) catch return false;
    Ed25519.Signature.fromBytes(signature.bytes).verifyStrict(message.slice(), key) catch return false;
    return true;
}

fn hkdf_sha256(secret: Bytes, salt: Bytes, info: Bytes, out: *[32]u8) callconv(.c) void {
    var key = Hkdf.extract(salt.slice(), secret.slice());
    defer std.crypto.secureZero(u8, &key);
    Hkdf.expand(out, info.slice(), key);
}

fn seal(key: Secret, plain: Bytes, sealed: [*]u8) callconv(.c) void {
    Aead.encrypt(sealed[0..plain.size], sealed[plain.size..][0..16], plain.slice(), "", nonce, key.*);
}

fn open_sealed(key: Secret, sealed: Bytes, plain: [*]u8) callconv(.c) bool {
    if (sealed.size < 16) return false;
    const all = sealed.slice();
    const text = all[0 .. all.len - 16];
    Aead.decrypt(plain[0..text.len], text, all[text.len..][0..16].*, "", nonce, key.*) catch return false;
    return true;
}
