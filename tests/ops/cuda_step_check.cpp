// The CUDA operations against float64 on a GPU: every phase, head ratio, gate and state type;
// poison, null rows, far slots; independence of batch and split; graph replay; the fold of all
// layers.
//   cuda_step_check [--quick] [--only TEXT] [--json FILE]
// --quick is small enough for compute-sanitizer; --only keeps the jobs whose names contain TEXT,
// such as "chunks kda". Exit status 0 if everything held, 77 without a GPU.
#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

#include "cuda_check_report.h"
#include "cuda_device_image.h"
#include "cuda_step_expect.h"
#include "cuda_window_sequence.h"

namespace replayssm::cuda::test {
namespace {

Worst same_bits(const Image& a, const Image& b) {
  Worst worst;
  compare_untouched(a, b, worst);
  return worst;
}

void check_phases(const Config& c, const DeviceLimits& limits, bool quick, Report& report) {
  const Stream stream = must(Stream::make());
  const int block = c.fold_block;
  std::uint64_t seed = 1000 + static_cast<std::uint64_t>(block);
  auto one = [&](ImageOptions o, const std::vector<int>& checkpoint,
                 const std::vector<int>& pending, const PlanWishes& wishes) {
    const Image before = make_image(o, checkpoint, pending);
    const Image after = window_on_device(before, limits, stream, wishes);
    report.add("window " + c.name(), compare_step(before, after, false),
               fmt::format("{} B={} p={}", c.heads_name(), o.entries, pending[0]));
  };
  std::vector<int> all;
  for (int p = 0; p <= block; ++p) all.push_back(p);
  for (const int batch : quick ? std::vector<int>{3} : std::vector<int>{3, 17}) {
    for (int shift = 0; shift <= block; shift += quick ? 7 : (batch == 3 ? 3 : 11)) {
      std::vector<int> pending;
      for (int e = 0; e < batch; ++e) {
        pending.push_back(all[static_cast<std::size_t>(shift + e * 5) % all.size()]);
      }
      ImageOptions o = options(c, batch, ++seed);
      o.null_rows = true;
      o.shared_base = true;
      o.projected_gates = shift % 2 == 1;
      if (c.gate == GateKind::kda && shift % 4 == 3) o.lower_bound = -5;
      PlanWishes wishes;
      if (shift % 4 == 2) wishes.overlap = 1;
      one(o, {3 * block, 0, 4 * block, block}, pending, wishes);
    }
  }
  if (!quick) {
    for (const int p : all) one(options(c, 1, ++seed), {p % 2 == 0 ? 4 * block : block}, {p}, {});
  }
  for (const int batch : quick ? std::vector<int>{3} : std::vector<int>{1, 3, 17}) {
    ImageOptions o = options(c, batch, ++seed);
    o.null_rows = batch > 1;
    o.shared_base = true;
    const Image before = make_image(o, {7, 0, 40}, {0});
    const Image after = packed_on_device(before, limits, stream);
    report.add(
        fmt::format("packed {} {}", c.gate == GateKind::gdn ? "gdn" : "kda", name_of(c.state)),
        compare_step(before, after, true), fmt::format("{} B={}", c.heads_name(), batch));
  }
}

// Windows of several tokens: the bits of steps of one token, whatever their lengths and whatever is
// rejected. `window` is the largest.
void check_windows(const Config& c, int window, const DeviceLimits& limits, bool quick,
                   Report& report) {
  const Stream stream = must(Stream::make());
  ImageOptions o =
      options(c, quick ? 2 : 7, static_cast<std::uint64_t>(c.fold_block + window), window);
  o.shared_base = true;
  o.projected_gates = window == 5;
  const int block = c.fold_block;
  // A multiprocessor alone has all units, as in large batches: several groups, stages that are
  // filled again and again.
  DeviceLimits crowded = limits;
  crowded.multiprocessors = 1;
  for (const DeviceLimits& device : {limits, crowded}) {
    const std::string different =
        compare_windows_with_steps(o, quick ? 2 * block : 5 * block, {0, 2 * block, 3 * block},
                                   {0, block / 2 + 1, block, 3, block - 1},
                                   [&](Image& m) { m = window_on_device(m, device, stream); });
    Worst worst;
    if (!different.empty()) worst.fail(different);
    report.add("windows equal steps of one token, bit for bit", worst,
               fmt::format("{} {} window {}, {} multiprocessors", c.name(), c.heads_name(), window,
                           device.multiprocessors));
  }
}

// Chunks of any length: the bits of steps of one token. `pending` up to L + window_max - 1 at
// first.
void check_chunks(const Config& c, int window_max, const DeviceLimits& limits, bool quick,
                  Report& report) {
  const Stream stream = must(Stream::make());
  const int block = c.fold_block;
  for (const int chunk : quick ? std::vector<int>{2 * block + 3} : std::vector<int>{block, 150}) {
    ImageOptions o = options(c, quick ? 2 : 5, static_cast<std::uint64_t>(block + chunk), chunk);
    o.ring_rows = static_cast<int>(std::bit_ceil(static_cast<unsigned>(block + window_max - 1)));
    o.shared_base = true;
    o.projected_gates = chunk == block;
    const int unit_rows = c.state == DType::bf16 && chunk == block ? 64 : 0;
    const Split split{
        true,
        [&](Image& m) {
          m = chunk_on_device(m, limits, stream, window_max, {.unit_rows = unit_rows});
        },
        [&](Image& m) {
          StepGeometry geometry = m.geometry();
          geometry.window_max = window_max;
          DeviceImage device(m, stream);
          must(launch_window_step(must(plan_window_step(geometry, limits)), device.args(), stream));
          device.get(m);
        },
        64};
    const std::string different =
        compare_split_with_steps(o, quick ? 3 * block : std::max(chunk + 20, 5 * block),
                                 {0, 2 * block}, {0, block + window_max - 1, 3}, split);
    Worst worst;
    if (!different.empty()) worst.fail(different);
    report.add("chunks equal steps of one token, bit for bit", worst,
               fmt::format("{} {} chunk {}", c.name(), c.heads_name(), chunk));
  }
}

// The entry alone: a batch of one, in the same pools.
Image alone(const Image& m, int entry) {
  Image one = m;
  one.o.entries = 1;
  const auto e = static_cast<std::ptrdiff_t>(entry);
  auto keep = [&](auto& v) {
    const auto n = static_cast<std::ptrdiff_t>(v.size()) / m.o.entries;
    v = {v.begin() + e * n, v.begin() + (e + 1) * n};
  };
  keep(one.qkv), keep(one.gate), keep(one.beta), keep(one.row), keep(one.out), keep(one.accepted);
  return one;
}

void check_independence(const Config& c, const DeviceLimits& limits, Report& report) {
  const Stream stream = must(Stream::make());
  const int block = c.fold_block;
  const Image before =
      make_image(options(c, 17, 5), {block, 3 * block}, {block, 1, block / 2, 0, block - 1});
  const Image packed_before = make_image(options(c, 17, 6), {3, 4}, {0});
  const Image whole = window_on_device(before, limits, stream);
  const Image packed = packed_on_device(packed_before, limits, stream);
  const int full = c.state == DType::bf16 ? 128 : 64;
  for (const PlanWishes& w : {PlanWishes{full, 1, 1, 0}, PlanWishes{full, 2, 4, 1},
                              PlanWishes{full / 2, 2, 6, 0}, PlanWishes{full / 2, 1, 2, 1}}) {
    const std::string what = fmt::format("{} rows {} groups {} stages {}", c.heads_name(),
                                         w.unit_rows, w.groups, w.stages);
    if (plan_window_step(before.geometry(), limits, w).ok()) {
      report.add("same bits for every split",
                 same_bits(whole, window_on_device(before, limits, stream, w)),
                 c.name() + " " + what);
    }
    if (plan_packed_step(before.geometry(), limits, w).ok()) {
      report.add("same bits for every split",
                 same_bits(packed, packed_on_device(packed_before, limits, stream, w)),
                 "packed " + what);
    }
  }
  // Every entry alone, one after the other in the same pools, against all at once.
  Image pools = before;
  std::vector<unsigned char> outputs;
  for (int e = 0; e < 17; ++e) {
    Image one = alone(pools, e);
    const Image after = window_on_device(one, limits, stream);
    outputs.insert(outputs.end(), after.out.begin(), after.out.end());
    pools.states = after.states;
    pools.keys = after.keys;
    pools.key_scales = after.key_scales;
    pools.corrections = after.corrections;
    pools.gates = after.gates;
  }
  pools.out = outputs;
  report.add("same bits alone and in a batch", same_bits(whole, pools), c.name());
}

// Window and advance in a graph, replayed with new inputs, changing rows and window lengths,
// against eager launches.
void check_graph(const Config& c, int window, const DeviceLimits& limits, int steps,
                 Report& report) {
  const Stream stream = must(Stream::make());
  ImageOptions o = options(c, 5, 9, window);
  o.null_rows = true;
  Image m = make_image(o, {0}, {0});
  DeviceImage eager(m, stream), graphed(m, stream);
  const StepPlan plan = must(plan_window_step(m.geometry(), limits));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  CUDA_MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  must(launch_window_step(plan, graphed.args(), stream));
  must(launch_advance(graphed.advance(false), stream));
  CUDA_MUST(cudaStreamEndCapture(stream, &graph));
  CUDA_MUST(cudaGraphInstantiate(&exec, graph, 0));
  const std::vector<int> rows = m.row;
  Image a = m, b = m;
  for (int i = 0; i < steps; ++i) {
    draw_inputs(m, static_cast<std::uint64_t>(i) + 77);
    for (std::size_t e = 0; e < 5; ++e) {  // rows change places, and now and then one is absent
      m.row[e] =
          (i + static_cast<int>(e)) % 7 == 6 ? -1 : rows[(e + static_cast<std::size_t>(i)) % 5];
      m.tokens[e] = 1 + (i + 3 * static_cast<int>(e)) % window;
    }
    eager.put_inputs(m);
    must(launch_window_step(plan, eager.args(), stream));
    must(launch_advance(eager.advance(false), stream));
    graphed.put_inputs(m);
    CUDA_MUST(cudaGraphLaunch(exec, stream));
    CUDA_MUST(cudaStreamSynchronize(stream));  // m is written again in the next turn
  }
  eager.get(a);
  graphed.get(b);
  Worst worst = same_bits(a, b);
  if (a.committed != b.committed || a.checkpoint != b.checkpoint) worst.fail("cursors differ");
  report.add("graph replay equals eager", worst, fmt::format("{} window {}", c.name(), window));
  CUDA_MUST(cudaGraphExecDestroy(exec));
  CUDA_MUST(cudaGraphDestroy(graph));
}

// Layers one after the other with overlapping launches that fetch states and records early, against
// the same without overlap.
void check_settled(const Config& c, int window, const DeviceLimits& limits, int steps,
                   Report& report) {
  const Stream stream = must(Stream::make());
  constexpr int kLayers = 3;
  ImageOptions o = options(c, 5, 0, window);
  o.null_rows = true;
  std::vector<Image> images;
  for (int layer = 0; layer < kLayers; ++layer) {
    o.seed = static_cast<std::uint64_t>(layer) + 91;
    images.push_back(make_image(o, {0}, {0}));
  }
  std::vector<DeviceImage> plain, early;
  plain.reserve(kLayers);
  early.reserve(kLayers);
  for (const Image& m : images) {
    plain.emplace_back(m, stream);
    early.emplace_back(m, stream);
  }
  PlanWishes alone, overlapping;
  alone.overlap = 0;
  overlapping.overlap = 1;
  const StepPlan apart = must(plan_window_step(images[0].geometry(), limits, alone));
  const StepPlan together = must(plan_window_step(images[0].geometry(), limits, overlapping));
  // The cursors of the first layer's image serve all layers.
  const auto args = [&](std::vector<DeviceImage>& layers, std::size_t layer) {
    StepArgs a = layers[layer].args();
    a.batch = layers[0].args().batch;
    return a;
  };
  for (int i = 0; i < steps; ++i) {
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      draw_inputs(images[layer], static_cast<std::uint64_t>(i * kLayers) + layer + 500);
      plain[layer].put_inputs(images[layer]);
      early[layer].put_inputs(images[layer]);
    }
    CUDA_MUST(cudaStreamSynchronize(stream));  // so that launches follow launches below
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      must(launch_window_step(apart, args(plain, layer), stream));
    }
    must(launch_advance(plain[0].advance(false), stream));
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      StepArgs a = args(early, layer);
      a.settled = layer > 0 ? 1 : 0;  // the launch before the first layer moves cursors
      must(launch_window_step(together, a, stream));
    }
    must(launch_advance(early[0].advance(false), stream));
    CUDA_MUST(cudaStreamSynchronize(stream));
  }
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    Image a = images[layer], b = images[layer];
    plain[layer].get(a);
    early[layer].get(b);
    report.add("settled launches equal separate ones", same_bits(a, b),
               fmt::format("{} window {} layer {}", c.name(), window, layer));
  }
}

// Many tokens of one row: the error of replay and of the packed step against float64 from token 0.
void check_long_run(const Config& c, const DeviceLimits& limits, int tokens, Report& report) {
  const Stream stream = must(Stream::make());
  Image m = make_image(options(c, 1, 21), {0}, {0});
  DeviceImage replay(m, stream), packed(m, stream);
  const StepPlan window = must(plan_window_step(m.geometry(), limits));
  const StepPlan step_plan = must(plan_packed_step(m.geometry(), limits));
  std::vector<HeadState> s(static_cast<std::size_t>(m.hv()), HeadState(kValueDim * kKeyDim));
  std::vector<double> d, o;
  double error[2][4] = {}, size[4] = {};  // by quarter of the run
  Image a = m, b = m;
  for (int t = 0; t < tokens; ++t) {
    draw_inputs(m, static_cast<std::uint64_t>(t) + 31337);
    for (float& g : m.gate) g = g < -1 ? -0.01f : g * 0.1f;  // mild
    replay.put_inputs(m);
    packed.put_inputs(m);
    must(launch_window_step(window, replay.args(), stream));
    must(launch_advance(replay.advance(false), stream));
    must(launch_packed_step(step_plan, packed.args(), stream));
    must(launch_advance(packed.advance(true), stream));
    CUDA_MUST(cudaMemcpyAsync(a.out.data(), replay.args().out, a.out.size(), cudaMemcpyDeviceToHost,
                              stream));
    CUDA_MUST(cudaMemcpyAsync(b.out.data(), packed.args().out, b.out.size(), cudaMemcpyDeviceToHost,
                              stream));
    CUDA_MUST(cudaStreamSynchronize(stream));
    const int quarter = t * 4 / tokens;
    for (int head = 0; head < m.hv(); ++head) {
      step(m, 0, head, s[static_cast<std::size_t>(head)], d, o);
      for (int v = 0; v < kValueDim; ++v) {
        const double want = o[static_cast<std::size_t>(v)];
        error[0][quarter] += std::pow(a.out_value(0, head, v) - want, 2);
        error[1][quarter] += std::pow(b.out_value(0, head, v) - want, 2);
        size[quarter] += want * want;
      }
    }
  }
  double relative[2][4];
  for (int i = 0; i < 2; ++i) {
    for (int q = 0; q < 4; ++q) relative[i][q] = std::sqrt(error[i][q] / size[q]);
  }
  Worst worst;
  worst.output = relative[0][3];
  worst.state = relative[1][3];  // reported in the table's last column: the packed step's
  const double allowed = c.state == DType::bf16 ? relative[1][3] : 4 * relative[1][3];
  if (!(relative[0][3] <= allowed)) worst.fail("replay is less accurate than allowed");
  if (c.state == DType::f32 && !(relative[0][3] < 1e-6)) worst.fail("above 1e-6");
  if (!(relative[0][3] <= 1.2 * relative[0][1])) worst.fail("the error grows");
  report.add(fmt::format("{} tokens (output: replay, state: packed) {}", tokens, c.name()), worst,
             fmt::format("replay {:.3g} {:.3g} {:.3g} {:.3g} packed {:.3g} {:.3g} {:.3g} {:.3g}",
                         relative[0][0], relative[0][1], relative[0][2], relative[0][3],
                         relative[1][0], relative[1][1], relative[1][2], relative[1][3]));
}

void check_block_of_one(GateKind gate, const DeviceLimits& limits, Report& report) {
  const Stream stream = must(Stream::make());
  Config c{gate, DType::f32, 1, {gate, 2, 4}};
  Image replay = make_image(options(c, 3, 3), {0}, {0});
  Image packed = replay;
  DeviceImage r(replay, stream), p(packed, stream);
  for (int token = 0; token < 40; ++token) {
    draw_inputs(replay, static_cast<std::uint64_t>(token));
    r.put_inputs(replay);
    p.put_inputs(replay);
    must(launch_window_step(must(plan_window_step(replay.geometry(), limits)), r.args(), stream));
    must(launch_advance(r.advance(false), stream));
    must(launch_packed_step(must(plan_packed_step(packed.geometry(), limits)), p.args(), stream));
    must(launch_advance(p.advance(true), stream));
    Image a = replay, b = packed;
    r.get(a);
    p.get(b);
    Worst worst;
    if (a.out != b.out) worst.fail(fmt::format("token {}", token));
    report.add("L = 1 equals packed, bit for bit", worst, gate == GateKind::gdn ? "gdn" : "kda");
  }
}

// A step reads the ring's keys in all units of a key head and appends one in a single one of them.
// With one block, that unit is long done when the last ones read: the order that shows an append to
// a row that is still read, which racecheck cannot see in device memory. A ring of only L rows is
// such a case at t - c = L, and must be found out, or this test finds nothing.
void check_ring_overwrite(const Config& c, const DeviceLimits& limits, Report& report) {
  const Stream stream = must(Stream::make());
  DeviceLimits one_block = limits;
  one_block.multiprocessors = 1;
  PlanWishes halves;
  halves.unit_rows = c.state == DType::bf16 ? 64 : 32;
  halves.groups = 1;
  halves.stages = 1;  // what the first unit wrote has arrived long before the last one reads
  for (int pending = 0; pending <= c.fold_block; ++pending) {
    const Image before = make_image(options(c, 2, static_cast<std::uint64_t>(pending) + 400),
                                    {2 * c.fold_block, 3 * c.fold_block}, {pending});
    const Image after = window_on_device(before, one_block, stream, halves);
    Worst worst = compare_step(before, after, false);
    compare_untouched(after, window_on_device(before, limits, stream, halves), worst);
    report.add("appending while siblings read the ring", worst,
               fmt::format("{} p={}", c.name(), pending));
  }
  ImageOptions small = options(c, 1, 500);
  const Image right = make_image(small, {2 * c.fold_block}, {c.fold_block});
  const StepPlan plan = must(plan_window_step(right.geometry(), one_block, halves));
  small.ring_rows = c.fold_block;  // what plan_window_step refuses
  const Image before = make_image(small, {2 * c.fold_block}, {c.fold_block});
  DeviceImage device(before, stream);
  must(launch_window_step(plan, device.args(), stream));
  Image after = before;
  device.get(after);
  Worst found;
  if (compare_step(before, after, false).fault.empty()) {
    found.fail("a ring that is too small went unnoticed");
  }
  report.add("a ring of L rows is found out", found, c.name());
}

void check_far_slots(const Config& c, const DeviceLimits& limits, Report& report) {
  const Stream stream = must(Stream::make());
  ImageOptions o = options(c, 1, 8);
  const Image before = make_image(o, {2 * c.fold_block}, {c.fold_block});
  const std::int64_t stride = (std::int64_t{1} << 31) + 8192;  // base is slot 2: beyond 2^32
  const Image after = window_on_device(before, limits, stream, {}, stride);
  report.add("slots beyond 2^31 elements", compare_step(before, after, false), c.name());
  Worst windows;
  const std::string different = compare_windows_with_steps(
      options(c, 1, 8, 8), 12, {2 * c.fold_block}, {c.fold_block},
      [&](Image& m) { m = window_on_device(m, limits, stream, {}, stride); });
  if (!different.empty()) windows.fail(different);
  report.add("slots beyond 2^31 elements", windows, c.name() + " windows");
}

void check_fold(const Config& c, const DeviceLimits& limits, int ring, int most, Report& report) {
  const Stream stream = must(Stream::make());
  const int entries = 5, layer_count = 3;
  ImageOptions o = options(c, entries, 0);
  o.ring_rows = ring;
  std::vector<Image> before;
  std::vector<DeviceImage> devices;
  for (int layer = 0; layer < layer_count; ++layer) {
    o.seed = static_cast<std::uint64_t>(layer) + 50;
    before.push_back(make_image(o, {0, ring / 2, ring}, {most, most / 2, 1, 0, most}));
  }
  std::vector<FoldLayer> layers;
  devices.reserve(3);
  for (Image& m : before) layers.push_back(devices.emplace_back(m, stream).layer());
  const Image& first = before[0];
  std::vector<int> from, records, source, destination;
  const std::size_t state_bytes = first.o.heads.state_elements() * first.element();
  const DeviceBuffer buffer = must(DeviceBuffer::make(layer_count * state_bytes));
  CUDA_MUST(cudaMemsetAsync(buffer.as<void>(), 0xff, buffer.bytes(), stream));
  std::vector<void*> buffers(entries, nullptr);
  buffers[1] = buffer.as<void>();
  for (std::size_t e = 0; e < entries; ++e) {
    const auto row = static_cast<std::size_t>(first.row[e]);
    from.push_back(first.checkpoint[row]);
    records.push_back(first.committed[row] - first.checkpoint[row]);
    source.push_back(e == 2 ? -1 : first.base[row]);
    destination.push_back(e == 1 ? -1 : e == 4 ? 0 : first.base[row]);
  }
  auto upload = [&](const auto& v) {
    return must(DeviceBuffer::copy_of(v.data(), v.size() * sizeof(v[0])));
  };
  const DeviceBuffer d_layers = upload(layers), d_row = upload(first.row), d_from = upload(from),
                     d_records = upload(records), d_source = upload(source),
                     d_destination = upload(destination), d_buffers = upload(buffers);
  const FoldArgs args{d_layers.as<FoldLayer>(),
                      layer_count,
                      entries,
                      d_row.as<int>(),
                      d_from.as<int>(),
                      d_records.as<int>(),
                      d_source.as<int>(),
                      d_destination.as<int>(),
                      d_buffers.as<void*>(),
                      c.heads.key_heads,
                      c.heads.value_heads,
                      ring};
  must(launch_fold(
      must(plan_fold({first.o.heads, c.state, ring, most, entries, layer_count}, limits)), args,
      stream));
  Worst worst;
  for (std::size_t layer = 0; layer < layer_count; ++layer) {
    Image is = before[layer], allowed = before[layer];
    devices[layer].get(is);
    for (std::size_t e = 0; e < entries; ++e) {
      if (source[e] < 0) continue;
      Image got = is;
      int slot = destination[e];
      if (slot < 0) {
        slot = 0;
        CUDA_MUST(cudaMemcpy(got.states.data(), buffer.as<char>() + layer * state_bytes,
                             state_bytes, cudaMemcpyDeviceToHost));
      } else {
        allow(allowed.states, is.states, is.state_at(slot, 0, 0, 0) * is.element(), state_bytes);
      }
      for (int head = 0; head < is.hv(); ++head) {
        HeadState want = from[e] > 0 ? load_state(before[layer], source[e], head)
                                     : HeadState(kValueDim * kKeyDim);
        for (int p = from[e]; p < from[e] + records[e]; ++p) {
          apply_record(before[layer], first.row[e], head, p, want);
        }
        compare_state(got, slot, head, want, worst);
      }
    }
    compare_untouched(allowed, is, worst);
  }
  judge(worst, first);
  report.add("fold " + c.name(), worst, fmt::format("{} ring {} n={}", c.heads_name(), ring, most));
}

// Checks of one kind over one configuration.
struct Job {
  std::string name;
  std::function<void()> check;
};

std::vector<Config> configurations(bool quick) {
  const std::vector<HeadShape> shapes = quick ? std::vector<HeadShape>{{GateKind::gdn, 1, 2}}
                                              : std::vector<HeadShape>{{GateKind::gdn, 2, 2},
                                                                       {GateKind::gdn, 2, 4},
                                                                       {GateKind::gdn, 2, 6},
                                                                       {GateKind::gdn, 1, 8}};
  const std::vector<HeadShape> other_shapes = {
      {GateKind::gdn, 2, 8}, {GateKind::gdn, 1, 5}, {GateKind::gdn, 1, 6}, {GateKind::gdn, 1, 7}};
  std::vector<Config> configs;
  for (const GateKind gate : {GateKind::gdn, GateKind::kda}) {
    for (const DType state : {DType::f32, DType::bf16}) {
      for (const int block : quick ? std::vector<int>{16} : std::vector<int>{8, 16, 32}) {
        for (const HeadShape& heads : shapes) configs.push_back({gate, state, block, heads});
        if (quick || block != 16) continue;
        for (const HeadShape& heads : other_shapes) configs.push_back({gate, state, block, heads});
      }
    }
  }
  return configs;
}

// Jobs that run beside each other.
std::vector<Job> jobs_of(bool quick, const DeviceLimits& limits, Report& report) {
  std::vector<Job> jobs;
  for (const Config& c : configurations(quick)) {
    const auto add = [&](const char* kind, std::function<void()> check) {
      jobs.push_back({fmt::format("{} {} {}", kind, c.name(), c.heads_name()), std::move(check)});
    };
    add("phases", [&, c, quick] { check_phases(c, limits, quick, report); });
    add("folds", [&, c, quick] {
      check_fold(c, limits, 2 * c.fold_block, std::min(2 * c.fold_block, 47), report);
      if (!quick) check_fold(c, limits, 2 * c.fold_block, c.fold_block, report);
      if (!quick && c.fold_block == 16) check_fold(c, limits, 128, 4, report);
    });
    if (c.heads.group() != 2) continue;
    for (const int window : quick ? std::vector<int>{8} : std::vector<int>{2, 5, 8, 16}) {
      if (window > c.fold_block) continue;
      add("windows", [&, c, window, quick] { check_windows(c, window, limits, quick, report); });
    }
    add("chunks", [&, c, quick] { check_chunks(c, quick ? 1 : 8, limits, quick, report); });
    for (const int window : {1, 8}) {
      add("graphs", [&, c, window, quick] {
        check_graph(c, window, limits, quick ? 18 : 3 * c.fold_block + 2, report);
      });
      add("settled", [&, c, window, quick] {
        check_settled(c, window, limits, quick ? 18 : 2 * c.fold_block + 3, report);
      });
    }
    if (quick) continue;
    add("splits", [&, c] { check_independence(c, limits, report); });
    add("rings", [&, c] { check_ring_overwrite(c, limits, report); });
    if (c.fold_block == 16) add("long", [&, c] { check_long_run(c, limits, 2048, report); });
  }
  for (const GateKind gate : {GateKind::gdn, GateKind::kda}) {
    if (!quick) {
      jobs.push_back({"blocks of one", [&, gate] { check_block_of_one(gate, limits, report); }});
    }
  }
  return jobs;
}

// Jobs that take most of the device's memory.
std::vector<Job> large_jobs(const DeviceLimits& limits, Report& report) {
  std::vector<Job> jobs;
  for (const GateKind gate : {GateKind::gdn, GateKind::kda}) {
    for (const DType state : {DType::f32, DType::bf16}) {
      jobs.push_back({"far slots", [&, gate, state] {
                        check_far_slots({gate, state, 16, {gate, 2, 4}}, limits, report);
                      }});
    }
  }
  return jobs;
}

int run(bool quick, const std::string& only, const std::string& json) {
  const DeviceLimits limits = must(device_limits());
  Report report;
  const auto run_jobs = [&](std::vector<Job> jobs, unsigned thread_count) {
    std::erase_if(jobs, [&](const Job& job) { return job.name.find(only) == std::string::npos; });
    std::atomic<std::size_t> next{0};
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < thread_count; ++i) {
      threads.emplace_back([&] {
        for (std::size_t j = next++; j < jobs.size(); j = next++) {
          current_job = jobs[j].name;
          const auto begin = std::chrono::steady_clock::now();
          jobs[j].check();
          const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
          report.add_time(jobs[j].name.substr(0, jobs[j].name.find(' ')), time.count());
        }
      });
    }
    for (std::thread& t : threads) t.join();
  };
  const unsigned cores = std::clamp(std::thread::hardware_concurrency(), 1u, 12u);
  run_jobs(jobs_of(quick, limits, report), quick ? 1 : cores);
  if (!quick) run_jobs(large_jobs(limits, report), 1);
  const int faults = report.print(json);
  std::printf("%s: %d faults\n", faults == 0 ? "PASS" : "FAIL", faults);
  return faults == 0 ? 0 : 1;
}

}  // namespace
}  // namespace replayssm::cuda::test

int main(int argc, char** argv) {
  bool quick = false;
  std::string only, json;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0) quick = true;
    if (std::strcmp(argv[i], "--only") == 0 && i + 1 < argc) only = argv[++i];
    if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) json = argv[++i];
  }
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("skipped: this machine has no GPU\n");
    return 77;
  }
  return replayssm::cuda::test::run(quick, only, json);
}
