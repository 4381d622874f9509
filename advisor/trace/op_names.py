"""Names by which rows of autograd's engine are known in a trace."""

# Around the evaluation of each node of a graph, in torch 1.9 and later; the node's name follows.
AUTOGRAD_NODE = "autograd::engine::evaluate_function"
# What stores the gradient of a parameter, inside its node or by itself.
GRADIENT_STORE = "torch::autograd::AccumulateGrad"
# What `backward()` fills the gradient of a loss with, just before its first node.
FIRST_GRADIENT = "aten::ones_like"
