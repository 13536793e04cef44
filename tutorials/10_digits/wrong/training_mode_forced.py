"""Evaluation ends with model.train(): layers that a user has put into evaluation mode for good are trained again.

rejected by: test_evaluation
message: each module gets back the mode that it had
"""


def evaluate(model, loader):
    model.eval()
    total, right, count = 0.0, 0, 0
    with flow.no_grad():
        for images, labels in loader:
            logits = model(images)
            total += nn.functional.cross_entropy(logits, labels).item() * len(labels)
            right += (logits.argmax(dim=1) == labels).sum().item()
            count += len(labels)
    model.train()
    return total / count, right / count
