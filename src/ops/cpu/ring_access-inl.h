// One row of a record ring: where its parts lie, and their storage types.
#if defined(REPLAYSSM_CPU_RING_ACCESS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPLAYSSM_CPU_RING_ACCESS_INL_H_
#undef REPLAYSSM_CPU_RING_ACCESS_INL_H_
#else
#define REPLAYSSM_CPU_RING_ACCESS_INL_H_
#endif

#include "ops/cpu/vector_math-inl.h"
#include "ops/views.h"

HWY_BEFORE_NAMESPACE();
namespace replayssm::cpu {
namespace HWY_NAMESPACE {

// Row r of the rings of `row`, head `head` of `heads`.
HWY_INLINE std::size_t ring_index(const RingView& ring, RowIndex row, int heads, int head, int r) {
  return (static_cast<std::size_t>(row.value) * heads + head) * ring.ring_rows + r;
}

// K or V stored values, fp32 or bf16.
struct StoredValues {
  void* data;
  DType type;
  std::size_t offset;

  // The values themselves where they are fp32, else converted into `room` [128].
  HWY_INLINE const float* as_float(float* room) const {
    if (type == DType::f32) return static_cast<const float*>(data) + offset;
    convert(static_cast<const bf16*>(data) + offset, room, kKeyDim);
    return room;
  }
  const std::byte* begin() const {
    return static_cast<const std::byte*>(data) + offset * size_of(type);
  }
  std::size_t bytes() const { return kKeyDim * size_of(type); }
  HWY_INLINE void write(const float* values) const {
    if (type == DType::f32)
      convert(values, static_cast<float*>(data) + offset, kKeyDim);
    else
      convert(values, static_cast<bf16*>(data) + offset, kKeyDim);
  }
};

static_assert(kKeyDim == kValueDim);

struct RingKey {
  StoredValues values;
  float* scale;

  HWY_INLINE const float* as_float(float* room) const { return values.as_float(room); }
  HWY_INLINE void write(const float* key, float inverse) const {
    values.write(key);
    *scale = inverse;
  }
};

HWY_INLINE RingKey ring_key(const HeadShape& shape, const RingView& ring, RowIndex row,
                            int key_head, int r) {
  const std::size_t index = ring_index(ring, row, shape.key_heads, key_head, r);
  return {{ring.keys, ring.key_type, index * kKeyDim}, ring.key_scales + index};
}

struct RingCorrection {
  StoredValues values;
  float* decay;  // exp(gate), GateForm::decay

  HWY_INLINE const float* as_float(float* room) const { return values.as_float(room); }
  HWY_INLINE void write(const float* correction, const float* decays, int width) const {
    values.write(correction);
    std::copy_n(decays, width, decay);
  }
};

HWY_INLINE RingCorrection ring_correction(const HeadShape& shape, const RingView& ring,
                                          RowIndex row, int value_head, int r) {
  const std::size_t index = ring_index(ring, row, shape.value_heads, value_head, r);
  return {{ring.corrections, ring.correction_type, index * kValueDim},
          ring.gates + index * shape.gate_width()};
}

}  // namespace HWY_NAMESPACE
}  // namespace replayssm::cpu
HWY_AFTER_NAMESPACE();

#endif
