"""The multi-token-prediction head of the Qwen3.5 family, which transformers does not have.

It reads the trunk's hidden state after the final norm and the embedding of the next token, and
predicts the token after that through the trunk's own head. Parameter names are the published ones.
"""

import copy

import torch
from torch import nn
from transformers.models.qwen3_5 import modeling_qwen3_5 as modeling


class MultiTokenPrediction(nn.Module):
    def __init__(self, config):
        super().__init__()
        config = copy.deepcopy(config)
        config.layer_types = ["full_attention"]
        config.num_hidden_layers = 1
        width, eps = config.hidden_size, config.rms_norm_eps
        self.fc = nn.Linear(2 * width, width, bias=False)
        self.pre_fc_norm_embedding = modeling.Qwen3_5RMSNorm(width, eps)
        self.pre_fc_norm_hidden = modeling.Qwen3_5RMSNorm(width, eps)
        self.layers = nn.ModuleList([modeling.Qwen3_5DecoderLayer(config, 0)])
        self.norm = modeling.Qwen3_5RMSNorm(width, eps)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=config.initializer_range)

    def forward(self, hidden, next_embedding, position_embeddings, attention_mask=None):
        """hidden, next_embedding [batch, tokens, width] -> hidden of the same shape."""
        joined = torch.cat(
            (self.pre_fc_norm_embedding(next_embedding), self.pre_fc_norm_hidden(hidden)), dim=-1
        )
        hidden = self.layers[0](
            self.fc(joined),
            position_embeddings=position_embeddings,
            attention_mask=attention_mask,
        )
        return self.norm(hidden)
