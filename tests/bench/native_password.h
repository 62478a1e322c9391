/* How mysql_native_password proves that a client knows the password. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static uint32_t rotated(uint32_t x, int by) { return x << by | x >> (32 - by); }

static void sha1_block(uint32_t h[5], const uint8_t *block) {
    uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | block[4 * i + 1] << 16 | block[4 * i + 2] << 8 |
               block[4 * i + 3];
    for (int i = 16; i < 80; i++) w[i] = rotated(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (int i = 0; i < 80; i++) {
        uint32_t f, k;
        if (i < 20) f = (b & c) | (~b & d), k = 0x5a827999;
        else if (i < 40) f = b ^ c ^ d, k = 0x6ed9eba1;
        else if (i < 60) f = (b & c) | (b & d) | (c & d), k = 0x8f1bbcdc;
        else f = b ^ c ^ d, k = 0xca62c1d6;
        uint32_t t = rotated(a, 5) + f + e + k + w[i];
        e = d, d = c, c = rotated(b, 30), b = a, a = t;
    }
    h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e;
}

/* Of at most 247 bytes. */
static void sha1(const uint8_t *data, size_t bytes, uint8_t digest[20]) {
    uint32_t h[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    uint8_t padded[256] = {0};
    size_t blocks = (bytes + 9 + 63) / 64;
    if (blocks * 64 > sizeof padded) abort();
    memcpy(padded, data, bytes);
    padded[bytes] = 0x80;
    for (int i = 0; i < 8; i++) padded[blocks * 64 - 1 - i] = (uint64_t)bytes * 8 >> 8 * i;
    for (size_t i = 0; i < blocks; i++) sha1_block(h, padded + 64 * i);
    for (int i = 0; i < 20; i++) digest[i] = h[i / 4] >> (24 - 8 * (i % 4));
}

/* SHA1(password) XOR SHA1(scramble + SHA1(SHA1(password))); nothing for an empty one. Returns the
 * bytes of it. */
static size_t proof(const char *password, const uint8_t scramble[20], uint8_t to[20]) {
    uint8_t once[20], both[40], mask[20];
    if (!*password) return 0;
    sha1((const uint8_t *)password, strlen(password), once);
    memcpy(both, scramble, 20);
    sha1(once, 20, both + 20);
    sha1(both, 40, mask);
    for (int i = 0; i < 20; i++) to[i] = once[i] ^ mask[i];
    return 20;
}
