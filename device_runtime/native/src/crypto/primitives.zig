//! The primitives of crypto.h, from Zig's standard library, as C functions. They allocate nothing, call only the C
//! library's memcpy and memset, and keep no state. Wherever a length is given, a null pointer may go with 0.
const std = @import("std");
const X25519 = std.crypto.dh.X25519;
const Ed25519 = std.crypto.sign.Ed25519;
const Hkdf = std.crypto.kdf.hkdf.HkdfSha256;
const Aead = std.crypto.aead.chacha_poly.ChaCha20Poly1305;

// What cannot happen ends the process and prints nothing: messages would need all of std.debug.
pub const panic = std.debug.no_panic;

const Bytes = ?[*]const u8;

fn slice(data: Bytes, size: usize) []const u8 {
    return if (data) |first| first[0..size] else &.{};
}

export fn phonograd_x25519_public(public: *[32]u8, secret: *const [32]u8) void {
    public.* = X25519.recoverPublicKey(secret.*);
}

export fn phonograd_x25519_shared(shared: *[32]u8, secret: *const [32]u8, other: *const [32]u8) bool {
    shared.* = X25519.scalarmult(secret.*, other.*) catch return false; // the result is 0
    return true;
}

fn pairOf(seed: [32]u8) Ed25519.KeyPair {
    return Ed25519.KeyPair.generateDeterministic(seed) catch @trap(); // a clamped scalar times the base is never 0
}

export fn phonograd_ed25519_public(public: *[32]u8, seed: *const [32]u8) void {
    var pair = pairOf(seed.*);
    defer std.crypto.secureZero(u8, &pair.secret_key.bytes);
    public.* = pair.public_key.toBytes();
}

export fn phonograd_ed25519_sign(signature: *[64]u8, seed: *const [32]u8, message: Bytes, size: usize) void {
    var pair = pairOf(seed.*);
    defer std.crypto.secureZero(u8, &pair.secret_key.bytes);
    const signed = pair.sign(slice(message, size), null) catch @trap(); // the nonce is 0: one chance in 2^252
    signature.* = signed.toBytes();
}

fn verified(signature: [64]u8, public: [32]u8, message: []const u8) !void {
    const key = try Ed25519.PublicKey.fromBytes(public);
    try Ed25519.Signature.fromBytes(signature).verifyStrict(message, key);
}

export fn phonograd_ed25519_verify(signature: *const [64]u8, public: *const [32]u8, message: Bytes, size: usize) bool {
    verified(signature.*, public.*, slice(message, size)) catch return false;
    return true;
}

export fn phonograd_hkdf_sha256(
    out: [*]u8,
    out_size: usize,
    secret: Bytes,
    secret_size: usize,
    salt: Bytes,
    salt_size: usize,
    info: Bytes,
    info_size: usize,
) void {
    var key = Hkdf.extract(slice(salt, salt_size), slice(secret, secret_size));
    defer std.crypto.secureZero(u8, &key);
    Hkdf.expand(out[0..out_size], slice(info, info_size), key);
}

export fn phonograd_seal(
    sealed: [*]u8,
    key: *const [32]u8,
    nonce: *const [12]u8,
    associated: Bytes,
    associated_size: usize,
    plain: Bytes,
    plain_size: usize,
) void {
    const tag = sealed[plain_size..][0..16];
    Aead.encrypt(sealed[0..plain_size], tag, slice(plain, plain_size), slice(associated, associated_size), nonce.*, key.*);
}

export fn phonograd_open(
    plain: ?[*]u8,
    plain_size: usize,
    key: *const [32]u8,
    nonce: *const [12]u8,
    associated: Bytes,
    associated_size: usize,
    sealed: [*]const u8,
) bool {
    const out: []u8 = if (plain) |first| first[0..plain_size] else &.{};
    const tag = sealed[plain_size..][0..16];
    Aead.decrypt(out, sealed[0..plain_size], tag.*, slice(associated, associated_size), nonce.*, key.*) catch return false;
    return true;
}

export fn phonograd_equal(a: *const [32]u8, b: *const [32]u8) bool {
    return std.crypto.timing_safe.eql([32]u8, a.*, b.*);
}
