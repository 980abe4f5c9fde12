#include "model/onednn_product.h"

#include <omp.h>

#include <algorithm>
#include <oneapi/dnnl/dnnl.hpp>

#include "model/widen.h"

namespace replayssm {
namespace {

// oneDNN asks OpenMP for as many threads as this thread may start. One: then it starts none.
void use_one_thread() { omp_set_num_threads(1); }

template <class T>
const T* element(const WeightMatrix& weight, int row, int col) {
  return static_cast<const T*>(weight.data) +
         static_cast<std::size_t>(row) * static_cast<std::size_t>(weight.cols) +
         static_cast<std::size_t>(col);
}

}  // namespace

bool onednn_has_bf16_instructions() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::avx512_core_bf16:
    case dnnl::cpu_isa::avx512_core_amx:
      return true;
    default:
      return false;
  }
}

bool onednn_f32_product(const float* x, std::size_t x_stride, int rows, const WeightMatrix& weight,
                        int first, int last, float* out, std::size_t out_stride, float* scratch) {
  use_one_thread();
  const auto multiply = [&](int n, int n_count, int k, int k_count, const float* w,
                            std::size_t w_stride, float beta) {
    return dnnl_sgemm('N', 'T', rows, n_count, k_count, 1.0f, x + k,
                      static_cast<dnnl_dim_t>(x_stride), w, static_cast<dnnl_dim_t>(w_stride), beta,
                      out + n, static_cast<dnnl_dim_t>(out_stride)) == dnnl_success;
  };
  if (weight.type == DType::f32) {
    return multiply(first, last - first, 0, weight.cols, element<float>(weight, first, 0),
                    static_cast<std::size_t>(weight.cols), 0.0f);
  }
  for (int n = first; n < last; n += kWidenedRows) {
    const int n_count = std::min(kWidenedRows, last - n);
    for (int k = 0; k < weight.cols; k += kWidenedCols) {
      const int k_count = std::min(kWidenedCols, weight.cols - k);
      widen_block(weight, n, n_count, k, k_count, scratch);
      const float beta = k == 0 ? 0.0f : 1.0f;
      if (!multiply(n, n_count, k, k_count, scratch, static_cast<std::size_t>(k_count), beta)) {
        return false;
      }
    }
  }
  return true;
}

bool onednn_bf16_product(const bf16* x, std::size_t x_stride, int rows, const WeightMatrix& weight,
                         int first, int last, float* out, std::size_t out_stride) {
  use_one_thread();
  using dnnl::memory;
  try {
    static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    const memory::dim m = rows, n = last - first, k = weight.cols;
    const memory::desc x_desc({m, k}, memory::data_type::bf16,
                              memory::dims{static_cast<memory::dim>(x_stride), 1});
    const memory::desc w_desc({k, n}, memory::data_type::bf16, memory::dims{1, k});
    const memory::desc out_desc({m, n}, memory::data_type::f32,
                                memory::dims{static_cast<memory::dim>(out_stride), 1});
    const dnnl::matmul::primitive_desc plan(dnnl::matmul::desc(x_desc, w_desc, out_desc), engine);
    // oneDNN takes every address as writable; it reads the first two.
    const memory x_memory(x_desc, engine, const_cast<bf16*>(x));
    const memory w_memory(w_desc, engine, const_cast<bf16*>(element<bf16>(weight, first, 0)));
    const memory out_memory(out_desc, engine, out + first);
    dnnl::stream stream(engine);
    dnnl::matmul(plan).execute(
        stream,
        {{DNNL_ARG_SRC, x_memory}, {DNNL_ARG_WEIGHTS, w_memory}, {DNNL_ARG_DST, out_memory}});
    stream.wait();
    return true;
  } catch (const dnnl::error&) {
    return false;
  }
}

}  // namespace replayssm
