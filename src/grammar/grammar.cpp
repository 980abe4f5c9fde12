#include "grammar/grammar.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/call_compiler.h"
#include "grammar/schema_compiler.h"
#include "grammar/work_allowance.h"

namespace replayssm::grammar {
namespace {

// The automaton's states of this many bytes are worked out again, at most, after it forgot them;
// far fewer than it remembers, or it would forget again at once.
constexpr std::size_t kBytesBetweenMarks = 4096;

// Masks that are kept; one of a vocabulary of 250 thousand takes 31 KiB.
constexpr std::size_t kMostMasks = 256;

void allow(std::span<std::uint32_t> bits, TokenId id) {
  const auto at = static_cast<std::uint32_t>(id);
  bits[at / 32] |= 1u << (at % 32);
}

Error too_costly() {
  return Error{fmt::format(
      "schema: it is too costly to follow, more than {} steps for the next token and {} for each "
      "byte of the answer; expected patterns with fewer or smaller repetitions inside each other",
      WorkAllowance::kMost, WorkAllowance::kPerByte)};
}

Error not_allowed(std::string_view what) {
  return Error{
      fmt::format("grammar: the {} is not accepted; expected one that fits the schema", what)};
}

}  // namespace

struct ConstrainedTokens::Memory {
  explicit Memory(const Program& program) : automaton(program) {}

  std::mutex mutex;
  Automaton automaton;
  std::uint64_t epoch = 1;
  std::unordered_map<StateId, std::vector<std::uint32_t>> masks;
  std::vector<StateId> path;  // [depth + 1] of the walk

  void forget_if_due() {
    if (!automaton.forget_is_due()) return;
    automaton.forget();
    masks.clear();
    ++epoch;
  }

  // False where the allowance does not suffice.
  bool walk(const TokenTrie& vocabulary, std::span<const TokenTrie::Node> nodes, StateId from,
            std::span<std::uint32_t> bits, WorkAllowance& work) {
    path.resize(vocabulary.most_depth() + 1);
    path[0] = from;
    const std::span<const TokenId> tokens = vocabulary.tokens();
    for (std::size_t i = 0; i < nodes.size();) {
      const TokenTrie::Node& node = nodes[i];
      const StateId state = automaton.next(path[node.depth - 1u], node.byte, work);
      if (!Automaton::alive(state)) {
        if (state == Automaton::kTooCostly) return false;
        i = node.skip;
        continue;
      }
      path[node.depth] = state;
      for (std::uint32_t t = node.first_token; t < node.last_token; ++t) allow(bits, tokens[t]);
      ++i;
    }
    return true;
  }
};

struct GrammarState::Mark {
  std::size_t bytes = 0;  // of the text
  Automaton::Snapshot state;
};

Result<Grammar> Grammar::from_schema(const nlohmann::ordered_json& schema) {
  auto program = compile_schema(schema);
  if (!program.ok()) return program.error();
  return Grammar(std::make_shared<const Program>(std::move(*program)));
}

Result<Grammar> Grammar::tool_call(std::string_view format, std::span<const CallableTool> tools,
                                   std::string_view closing_tag) {
  auto program = compile_call(format, tools, closing_tag);
  if (!program.ok()) return program.error();
  return Grammar(std::make_shared<const Program>(std::move(*program)));
}

Grammar Grammar::json_object() {
  return Grammar(std::make_shared<const Program>(compile_any_object().value()));
}

ConstrainedTokens::ConstrainedTokens(Grammar grammar, std::shared_ptr<const TokenTrie> vocabulary)
    : grammar_(std::move(grammar)),
      vocabulary_(std::move(vocabulary)),
      memory_(std::make_unique<Memory>(grammar_.program())) {}
ConstrainedTokens::~ConstrainedTokens() = default;

GrammarState::GrammarState(std::shared_ptr<ConstrainedTokens> tokens)
    : tokens_(std::move(tokens)), work_(std::make_shared<WorkAllowance>()) {}

GrammarState GrammarState::restarted() const {
  GrammarState state(tokens_);
  state.work_ = work_;
  return state;
}

Result<GrammarState> GrammarState::at(std::shared_ptr<ConstrainedTokens> tokens,
                                      std::string_view position) {
  GrammarState state(std::move(tokens));
  REPLAYSSM_TRY(state.accept(position));
  return state;
}

// Precondition: the memory's mutex is held.
std::uint32_t GrammarState::current() const {
  ConstrainedTokens::Memory& memory = *tokens_->memory_;
  memory.forget_if_due();
  if (epoch_ != memory.epoch) {
    Automaton& automaton = memory.automaton;
    const StateId from = mark_ ? automaton.restore(mark_->state) : automaton.start(*work_);
    const auto behind = std::string_view(text_).substr(mark_ ? mark_->bytes : 0);
    const StateId state = automaton.run(from, behind, *work_);
    if (state == Automaton::kTooCostly) return state;
    state_ = state;
    epoch_ = memory.epoch;
  }
  return state_;
}

Status GrammarState::accept(std::string_view bytes) {
  if (ended_) return not_allowed("text after the end");
  const std::lock_guard lock(tokens_->memory_->mutex);
  Automaton& automaton = tokens_->memory_->automaton;
  StateId next = current();
  for (std::size_t i = 0; i < bytes.size() && Automaton::alive(next); ++i) {
    work_->earn(1);
    next = automaton.run(next, bytes.substr(i, 1), *work_);
  }
  if (next == Automaton::kTooCostly) return too_costly();
  if (next == Automaton::kDead) return not_allowed("text");
  state_ = next;
  text_ += bytes;
  if (text_.size() - (mark_ ? mark_->bytes : 0) >= kBytesBetweenMarks) {
    mark_ = std::make_shared<const Mark>(Mark{text_.size(), automaton.snapshot(next)});
  }
  return {};
}

Status GrammarState::accept(TokenId id) {
  if (tokens_->vocabulary().is_end_token(id)) {
    if (ended_ || !finished()) return not_allowed("end");
    ended_ = true;
    return {};
  }
  const std::string_view bytes = tokens_->vocabulary().bytes_of(id);
  if (bytes.empty()) return not_allowed("token without text");
  return accept(bytes);
}

std::uint64_t GrammarState::work() const { return work_->spent(); }

Status GrammarState::fill_mask(std::span<std::uint32_t> bits) const {
  std::fill(bits.begin(), bits.end(), 0u);
  if (ended_) return {};
  const TokenTrie& vocabulary = tokens_->vocabulary();
  ConstrainedTokens::Memory& memory = *tokens_->memory_;
  const std::lock_guard lock(memory.mutex);
  const StateId state = current();
  if (state == Automaton::kTooCostly) return too_costly();
  const auto known = memory.masks.find(state);
  if (known != memory.masks.end()) {
    std::copy(known->second.begin(), known->second.end(), bits.begin());
    return {};
  }
  // Most of a document is the inside of strings, where most tokens are allowed whatever the rest of
  // the grammar says.
  std::optional<std::uint32_t> room = memory.automaton.room_in_string(state);
  if (memory.automaton.inside_free_string(state, *work_)) room = kUnbounded;
  if (room) vocabulary.allow_plain_tokens(*room, bits);
  const auto nodes = room ? vocabulary.nodes_beside_plain() : vocabulary.nodes();
  if (!memory.walk(vocabulary, nodes, state, bits, *work_)) return too_costly();
  if (memory.automaton.accepting(state)) {
    for (const TokenId end : vocabulary.end_tokens()) allow(bits, end);
  }
  if (memory.masks.size() >= kMostMasks) memory.masks.clear();
  const auto words = static_cast<std::ptrdiff_t>(vocabulary.mask_words());
  memory.masks.emplace(state, std::vector<std::uint32_t>(bits.begin(), bits.begin() + words));
  return {};
}

bool GrammarState::finished() const {
  if (ended_) return true;
  const std::lock_guard lock(tokens_->memory_->mutex);
  return tokens_->memory_->automaton.accepting(current());
}

bool GrammarState::complete() const {
  if (ended_) return true;
  const std::lock_guard lock(tokens_->memory_->mutex);
  return tokens_->memory_->automaton.complete(current());
}

}  // namespace replayssm::grammar
