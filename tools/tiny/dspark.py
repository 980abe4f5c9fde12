"""DSpark: a Markov head that lets each draft know the one before, and a confidence head.

Slot k >= 0 of a block of seven predicts the token at start + k + 1, the anchor's slot included.
"""

import torch
import torch.nn.functional as F
from torch import nn

import draft_block
from draft_block import linear, slot_weights, weighted_mean

RANK = 64
CONFIDENCE_WEIGHT = 0.1


class MarkovHead(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.markov_w1 = nn.Embedding(shape.vocabulary, RANK)
        self.markov_w2 = linear(RANK, shape.vocabulary)
        nn.init.zeros_(self.markov_w2.weight)

    def forward(self, embedded, real_vocabulary: int):
        return F.linear(embedded, self.markov_w2.weight[:real_vocabulary]).float()


class ConfidenceHead(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.proj = linear(shape.hidden + RANK, 1, bias=True)
        nn.init.zeros_(self.proj.weight)
        nn.init.zeros_(self.proj.bias)

    def forward(self, hidden, embedded):
        """The logit of a draft's being accepted, those before it given."""
        joined = torch.cat((hidden, embedded.to(hidden.dtype)), dim=-1)
        return self.proj(joined).squeeze(-1).float()


class DSpark(draft_block.Backbone):
    name, title = "dspark", "DSpark"
    slots, drafts = 7, 7
    heads_of_its_own = f"vanilla Markov head of rank {RANK}, confidence head"

    def __init__(self, shape):
        super().__init__(shape)
        self.markov_head = MarkovHead(shape)
        self.confidence_head = ConfidenceHead(shape)

    def losses(self, blocks, embedding):
        """The loss, and whether each draft [rows, blocks, drafts] is the target's best token."""
        hidden = self.block(blocks.features, blocks.starts, blocks.tokens[..., 0], embedding)
        counted = blocks.counted
        hidden, best = hidden[counted], blocks.best[counted]
        embedded = self.markov_head.markov_w1(blocks.tokens[..., :-1][counted])
        logits = self.logits(hidden, embedding)
        logits = logits + self.markov_head(embedded, self.shape.real_vocabulary)
        as_best = logits.argmax(-1) == best
        # The head judges the drafts and must not change them.
        confidence = self.confidence_head(hidden.detach(), embedded.detach())
        judged = F.binary_cross_entropy_with_logits(confidence, as_best.float(), reduction="none")
        weights = slot_weights(counted)
        loss = weighted_mean(F.cross_entropy(logits, best, reduction="none"), weights)
        loss = loss + CONFIDENCE_WEIGHT * weighted_mean(judged, weights)
        right = torch.zeros_like(counted)
        right[counted] = as_best
        return loss, right

    @torch.inference_mode()
    def draft(self, features, starts, anchors, embedding):
        """Greedy drafts and the probability that each is accepted, both [rows, blocks, drafts]."""
        hidden = self.block(features, starts, anchors, embedding)
        logits = self.logits(hidden, embedding)
        drafts, confidences, previous = [], [], anchors
        for slot in range(self.drafts):
            embedded = self.markov_head.markov_w1(previous)
            biased = logits[..., slot, :] + self.markov_head(embedded, self.shape.real_vocabulary)
            confidences.append(self.confidence_head(hidden[..., slot, :], embedded).sigmoid())
            previous = biased.argmax(-1)
            drafts.append(previous)
        return torch.stack(drafts, dim=-1), torch.stack(confidences, dim=-1)

    def configuration(self) -> dict:
        return {
            "architectures": ["Qwen3DSparkModel"],
            "block_size": self.slots,
            "target_layer_ids": list(self.shape.target_layer_ids),
            "mask_token_id": self.shape.mask_token,
            "markov_rank": RANK,
            "markov_head_type": "vanilla",
            "enable_confidence_head": True,
            "confidence_head_with_markov": True,
        }
