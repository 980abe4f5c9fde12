#include "grammar/automaton.h"

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>

namespace replayssm::grammar {
namespace {

std::size_t combine(std::size_t seed, std::size_t value) {
  return (seed ^ value) * 0x9e3779b97f4a7c15u + (seed >> 29);
}

}  // namespace

std::size_t Automaton::Hash::operator()(const Stack& s) const {
  return combine(combine(combine(s.below, s.node), s.count), s.depth);
}
std::size_t Automaton::Hash::operator()(const Place& p) const {
  return combine(combine(combine(p.stack, p.node), p.count), p.depth);
}

Automaton::Automaton(const Program& program) : program_(&program) {
  std::map<std::string, std::uint8_t> classes;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    std::string membership;
    for (const ByteSet& set : program.sets) membership += set[byte] ? '1' : '0';
    const auto entry = classes.try_emplace(membership, static_cast<std::uint8_t>(classes.size()));
    class_of_[byte] = entry.first->second;
  }
  classes_ = classes.size();
  if (program.character) {
    std::vector<NodeId> entries = {program.rules[*program.character].entry};
    while (!entries.empty()) {
      const NodeId id = entries.back();
      const Node& node = program.nodes[id];
      entries.pop_back();
      if (node.kind == Node::Kind::split) entries.insert(entries.end(), {node.next, node.other});
      if (node.kind == Node::Kind::bytes && program.sets[node.set]['a']) plain_head_ = id;
    }
  }
  forget();
}

void Automaton::forget() {
  states_.clear();
  rows_.clear();
  state_ids_.clear();
  stacks_.assign(1, {});
  stack_ids_.clear();
  intern({});  // kDead
  states_.emplace_back();
  rows_.assign(classes_, kDead);
  rows_.resize(2 * classes_, kTooCostly);
  start_ = kUnknown;
}

StateId Automaton::start(WorkAllowance& work) {
  if (start_ != kUnknown) return start_;
  const Rule& root = program_->rules[program_->root];
  const StateId start = close({{root.entry, 0, root.nests ? 1u : 0u, 0}}, work);
  if (start != kTooCostly) start_ = start;
  return start;
}

Automaton::StackId Automaton::push(const Stack& stack) {
  const auto [entry, fresh] = stack_ids_.try_emplace(stack, static_cast<StackId>(stacks_.size()));
  if (fresh) stacks_.push_back(stack);
  return entry->second;
}

StateId Automaton::intern(State state) {
  std::string key;
  if (!state.places.empty()) {
    key.assign(reinterpret_cast<const char*>(state.places.data()),
               state.places.size() * sizeof(Place));
  }
  key += state.accepting ? '+' : '-';
  const auto [entry, fresh] =
      state_ids_.try_emplace(std::move(key), static_cast<StateId>(states_.size()));
  if (fresh) {
    states_.push_back(std::move(state));
    rows_.resize(rows_.size() + classes_, kUnknown);
  }
  return entry->second;
}

StateId Automaton::close(std::vector<Place> reached, WorkAllowance& work) {
  // Of the same order as a place: what a state takes besides its places.
  bool affordable = work.spend(1 + classes_ / 16);
  State state;
  std::unordered_set<Place, Hash> seen;
  const auto reach = [&](const Place& place) {
    const std::uint32_t nesting = program_->nodes[place.node].nesting;
    if (nesting > kMostDepth || place.depth + nesting > kMostDepth) return;
    affordable = affordable && work.spend(1);
    if (seen.insert(place).second) reached.push_back(place);
  };
  const std::vector<Place> first = std::exchange(reached, {});
  for (const Place& place : first) reach(place);
  // `call` continues at `next` with the counter `count` when the rule is done. A call that is the
  // last thing in its rule leaves no frame, so recursion there needs no stack.
  const auto enter = [&](const Place& place, NodeId next, std::uint32_t count, RuleId rule_id) {
    const Rule& rule = program_->rules[rule_id];
    const bool last = program_->nodes[next].kind == Node::Kind::done;
    const StackId stack = last ? place.stack : push({place.stack, next, count, place.depth});
    reach({rule.entry, 0, place.depth + (rule.nests ? 1 : 0), stack});
  };
  while (affordable && !reached.empty()) {
    const Place place = reached.back();
    reached.pop_back();
    const Node& node = program_->nodes[place.node];
    switch (node.kind) {
      case Node::Kind::bytes:
        state.places.push_back(place);
        break;
      case Node::Kind::split:
        reach({node.next, place.count, place.depth, place.stack});
        reach({node.other, place.count, place.depth, place.stack});
        break;
      case Node::Kind::call:
        enter(place, node.next, place.count, node.rule);
        break;
      case Node::Kind::repeat: {
        if (place.count >= node.least) reach({node.next, 0, place.depth, place.stack});
        if (node.most != kUnbounded && place.count >= node.most) break;
        // Past `least` an unbounded repetition need not be counted any further.
        const bool counts = node.most != kUnbounded || place.count < node.least;
        enter(place, place.node, place.count + (counts ? 1 : 0), node.rule);
        break;
      }
      case Node::Kind::done: {
        if (place.stack == 0) {
          state.accepting = true;
          break;
        }
        const Stack below = stacks_[place.stack];
        reach({below.node, below.count, below.depth, below.below});
        break;
      }
    }
  }
  if (!affordable) return kTooCostly;
  std::sort(state.places.begin(), state.places.end());
  if (state.places.size() > kMostPlaces) state.places.resize(kMostPlaces);
  return intern(std::move(state));
}

StateId Automaton::compute(StateId state, unsigned char byte, WorkAllowance& work) {
  std::vector<Place> reached;
  for (const Place& place : states_[state].places) {
    const Node& node = program_->nodes[place.node];
    if (!program_->sets[node.set][byte]) continue;
    reached.push_back({node.next, place.count, place.depth, place.stack});
  }
  const StateId next = reached.empty() ? kDead : close(std::move(reached), work);
  if (next != kTooCostly) rows_[state * classes_ + class_of_[byte]] = next;
  return next;
}

Automaton::Snapshot Automaton::snapshot(StateId state) const {
  Snapshot snapshot;
  snapshot.accepting = states_[state].accepting;
  for (const Place& place : states_[state].places) {
    std::vector<Frame> frames = {{place.node, place.count, place.depth}};
    for (StackId at = place.stack; at != 0; at = stacks_[at].below) {
      frames.push_back({stacks_[at].node, stacks_[at].count, stacks_[at].depth});
    }
    std::reverse(frames.begin(), frames.end());
    snapshot.places.push_back(std::move(frames));
  }
  return snapshot;
}

StateId Automaton::restore(const Snapshot& snapshot) {
  State state;
  state.accepting = snapshot.accepting;
  for (const std::vector<Frame>& frames : snapshot.places) {
    StackId stack = 0;
    for (std::size_t i = 0; i + 1 < frames.size(); ++i) {
      stack = push({stack, frames[i].node, frames[i].count, frames[i].depth});
    }
    const Frame& top = frames.back();
    state.places.push_back({top.node, top.count, top.depth, stack});
  }
  std::sort(state.places.begin(), state.places.end());
  return intern(std::move(state));
}

StateId Automaton::run(StateId state, std::string_view text, WorkAllowance& work) {
  for (const char c : text) {
    if (!alive(state)) break;
    state = next(state, static_cast<unsigned char>(c), work);
  }
  return state;
}

bool Automaton::self_loop(StateId state, StateId at, unsigned byte, std::size_t more,
                          WorkAllowance& work) {
  const StateId to = next(at, static_cast<unsigned char>(byte), work);
  if (more == 0) return to == state;
  if (!alive(to)) return false;
  // The second byte's range depends on the first (table 3-7 of the Unicode standard).
  const unsigned low = byte == 0xe0 ? 0xa0 : byte == 0xf0 ? 0x90 : 0x80;
  const unsigned high = byte == 0xed ? 0x9f : byte == 0xf4 ? 0x8f : 0xbf;
  for (unsigned second = low; second <= high; ++second) {
    // Bytes of one class lead to one state; the first of each run is enough.
    if (second > low && class_of_[second] == class_of_[second - 1]) continue;
    if (!self_loop(state, to, second, more - 1, work)) return false;
  }
  return true;
}

std::optional<std::uint32_t> Automaton::room_in_string(StateId state) const {
  const Place* head = nullptr;
  for (const Place& place : states_[state].places) {
    if (place.node == plain_head_) head = &place;
  }
  if (head == nullptr || head->stack == 0) return std::nullopt;
  // No other place may take a character, or it might take more of them.
  for (const Place& place : states_[state].places) {
    ByteSet set = program_->sets[program_->nodes[place.node].set];
    set.reset('"').reset('\\');
    if (set.any() && place.stack != head->stack) return std::nullopt;
  }
  const Stack& frame = stacks_[head->stack];
  const Node& repeat = program_->nodes[frame.node];
  if (repeat.kind != Node::Kind::repeat) return std::nullopt;
  // The frame counts the character that is about to come.
  return repeat.most == kUnbounded ? kUnbounded : repeat.most - frame.count + 1;
}

bool Automaton::inside_free_string(StateId state, WorkAllowance& work) {
  if (states_[state].free_string == FreeString::unknown) {
    bool free = true;
    for (unsigned byte = 0x20; byte < 0xf5 && free; ++byte) {
      if (byte == '"' || byte == '\\' || (byte >= 0x80 && byte < 0xc2)) continue;
      const std::size_t more = byte < 0x80 ? 0 : byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
      free = self_loop(state, state, byte, more, work);
    }
    if (work.left() == 0) return false;  // not known
    states_[state].free_string = free ? FreeString::yes : FreeString::no;
  }
  return states_[state].free_string == FreeString::yes;
}

}  // namespace replayssm::grammar
