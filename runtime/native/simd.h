// Vectors of 16 floats on whatever the compiler targets, and the two dot products that the
// instruction sets differ in. GCC's vector types are split by the compiler where the machine's
// registers are smaller; only what it would compile badly is written with intrinsics.

#pragma once

#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef float f32x16 __attribute__((vector_size(64)));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef uint32_t u32x16 __attribute__((vector_size(64)));
typedef uint16_t u16x16 __attribute__((vector_size(32)));
typedef int8_t i8x16 __attribute__((vector_size(16)));
typedef uint8_t u8x64 __attribute__((vector_size(64)));

#define RG_INLINE static inline __attribute__((always_inline))

template <typename V>
RG_INLINE V load(const void *from) {
    V value;
    memcpy(&value, from, sizeof(V));
    return value;
}

template <typename V>
RG_INLINE void store(void *to, V value) {
    memcpy(to, &value, sizeof(V));
}

RG_INLINE f32x16 splat(float value) { return value - f32x16{}; }

RG_INLINE f32x16 as_float(u32x16 bits) { return (f32x16)bits; }
RG_INLINE u32x16 as_bits(f32x16 value) { return (u32x16)value; }

RG_INLINE f32x16 maximum(f32x16 a, f32x16 b) {
#if defined(__AVX512F__)
    return (f32x16)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return a > b ? a : b;
#endif
}

RG_INLINE f32x16 absolute(f32x16 a) { return as_float(as_bits(a) & 0x7fffffffu); }

RG_INLINE float reduce_max(f32x16 a) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps((__m512)a);
#else
    float best = a[0];
    for (int i = 1; i < 16; ++i) best = a[i] > best ? a[i] : best;
    return best;
#endif
}

RG_INLINE float reduce_add(f32x16 a) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)a);
#else
    float parts[4] = {0, 0, 0, 0};
    for (int i = 0; i < 16; ++i) parts[i & 3] += a[i];
    return (parts[0] + parts[1]) + (parts[2] + parts[3]);
#endif
}

// Nearest, ties to even, for |a| < 2^22: adding 1.5 * 2^23 leaves the integer in the low bits.
RG_INLINE i32x16 round_to_int(f32x16 a) {
#if defined(__AVX512F__)
    return (i32x16)_mm512_cvtps_epi32((__m512)a);
#else
    const f32x16 magic = splat(12582912.0f);
    return (i32x16)(a + magic) - (i32x16)magic;
#endif
}

RG_INLINE f32x16 to_float(i32x16 a) { return __builtin_convertvector(a, f32x16); }

RG_INLINE void store_int8(int8_t *to, i32x16 a) {
#if defined(__AVX512F__)
    _mm_storeu_si128((__m128i *)to, _mm512_cvtepi32_epi8((__m512i)a));
#else
    store(to, __builtin_convertvector(a, i8x16));
#endif
}

// 16 halves, finite. Multiplying by 2^112 moves the exponent's bias and covers subnormals.
RG_INLINE f32x16 load_half(const void *from) {
#if defined(__AVX512F__)
    return (f32x16)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
#else
    const u32x16 bits = __builtin_convertvector(load<u16x16>(from), u32x16);
    const f32x16 magnitude = as_float((bits & 0x7fffu) << 13) * 0x1p112f;
    return as_float(as_bits(magnitude) | ((bits & 0x8000u) << 16));
#endif
}

// bfloat16 of 16 floats, nearest, ties to even; the values are finite.
RG_INLINE u32x16 to_bf16(f32x16 a) {
    const u32x16 bits = as_bits(a);
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

RG_INLINE float from_bf16(uint16_t bits) {
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

// 2^a. The fraction in [-0.5, 0.5] goes through the Taylor polynomial of 2^f, degree 6: its error
// there is below 1.5e-7. Below 2^-126 the result is 0.
RG_INLINE f32x16 exp2_approx(f32x16 a) {
    const f32x16 clamped = maximum(a, splat(-126.0f));
    const i32x16 whole = round_to_int(clamped);
    const f32x16 f = clamped - to_float(whole);
    f32x16 p = splat(1.5403530e-4f);
    p = p * f + 1.3333558e-3f;
    p = p * f + 9.6181291e-3f;
    p = p * f + 5.5504109e-2f;
    p = p * f + 2.4022651e-1f;
    p = p * f + 6.9314718e-1f;
    p = p * f + 1.0f;
    const f32x16 scaled = (f32x16)((i32x16)p + (whole << 23));
    return a < -126.0f ? f32x16{} : scaled;
}

RG_INLINE f32x16 exp_approx(f32x16 a) {
    const f32x16 limited = a > 88.0f ? splat(88.0f) : a;
    return exp2_approx(limited * 1.44269504f);
}

// Natural logarithm of positive normal numbers. The mantissa m in [sqrt(1/2), sqrt(2)) goes through
// 2 artanh((m - 1) / (m + 1)) as an odd polynomial: relative error below 2e-7, near 1 too.
RG_INLINE f32x16 log_approx(f32x16 a) {
    const i32x16 shifted = (i32x16)a - 0x3f3504f3;  // sqrt(1/2)
    const i32x16 exponent = shifted >> 23;
    const f32x16 m = (f32x16)((i32x16)a - (exponent << 23));
    const f32x16 z = (m - 1.0f) / (m + 1.0f);
    const f32x16 z2 = z * z;
    f32x16 p = splat(2.0f / 11.0f);
    p = p * z2 + 2.0f / 9.0f;
    p = p * z2 + 2.0f / 7.0f;
    p = p * z2 + 2.0f / 5.0f;
    p = p * z2 + 2.0f / 3.0f;
    p = p * z2 + 2.0f;
    return p * z + to_float(exponent) * 0.69314718f;
}

RG_INLINE f32x16 tanh_approx(f32x16 a) {
    const f32x16 e = exp_approx(absolute(a) * -2.0f);
    const f32x16 magnitude = (1.0f - e) / (1.0f + e);
    return as_float(as_bits(magnitude) | (as_bits(a) & 0x80000000u));
}

// acc[i] += sum over j < 4 of w[4 i + j] * x[j], where x4 holds four signed bytes.
#if defined(__AVX512VNNI__)
RG_INLINE i32x16 dot4_bytes(i32x16 acc, u8x64 w, int32_t x4) {
    return (i32x16)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)w, _mm512_set1_epi32(x4));
}
RG_INLINE i32x16 dot4_nibbles(i32x16 acc, u8x64 w, int32_t x4) { return dot4_bytes(acc, w, x4); }
#elif defined(__AVX2__)
// w < 16, so that the 16-bit sums of maddubs cannot saturate.
RG_INLINE __m256i dot4_half(__m256i acc, __m256i w, __m256i x) {
#if defined(__AVXVNNI__)
    return _mm256_dpbusd_avx_epi32(acc, w, x);
#else
    const __m256i pairs = _mm256_maddubs_epi16(w, x);
    return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#endif
}
RG_INLINE i32x16 dot4_nibbles(i32x16 acc, u8x64 w, int32_t x4) {
    const __m256i x = _mm256_set1_epi32(x4);
    __m256i halves[2], weights[2];
    memcpy(halves, &acc, 64);
    memcpy(weights, &w, 64);
    for (int i = 0; i < 2; ++i) halves[i] = dot4_half(halves[i], weights[i], x);
    memcpy(&acc, halves, 64);
    return acc;
}
RG_INLINE i32x16 dot4_bytes(i32x16 acc, u8x64 w, int32_t x4) {
#if defined(__AVXVNNI__)
    return dot4_nibbles(acc, w, x4);
#else
    const i32x16 high = dot4_nibbles(i32x16{}, (u8x64)(((u32x16)w >> 4) & 0x0f0f0f0fu), x4);
    return dot4_nibbles(acc, w & (uint8_t)15, x4) + (high << 4);
#endif
}
#else
RG_INLINE i32x16 dot4_bytes(i32x16 acc, u8x64 w, int32_t x4) {
    int8_t x[4];
    memcpy(x, &x4, 4);
    for (int j = 0; j < 4; ++j) acc += (i32x16)(((u32x16)w >> (8 * j)) & 255u) * (int32_t)x[j];
    return acc;
}
RG_INLINE i32x16 dot4_nibbles(i32x16 acc, u8x64 w, int32_t x4) { return dot4_bytes(acc, w, x4); }
#endif

// acc[i] += a[i].low * b.low + a[i].high * b.high, where each 32 bits hold two bfloat16.
RG_INLINE f32x16 dot2(f32x16 acc, u32x16 a, uint32_t b) {
#if defined(__AVX512BF16__)
    return (f32x16)_mm512_dpbf16_ps((__m512)acc, (__m512bh)a, (__m512bh)_mm512_set1_epi32((int)b));
#else
    acc += as_float(a << 16) * from_bf16((uint16_t)b);
    return acc + as_float(a & 0xffff0000u) * from_bf16((uint16_t)(b >> 16));
#endif
}
