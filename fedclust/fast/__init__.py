"""What makes a laptop enough. Each file says on top how it works, and is tested against the plain way.

    perceptron.py   clients' training of perceptrons       as `training.LocalSGD.loop`
    convnet.py      the same of small convolutional nets   as `training.LocalSGD.loop`
    shared.py       K models on every client's batch       as `decision.decisions` without it
    products.py     the sums both are made of              as NumPy's products of whole numbers
    sparse.py       the same without the zeros             as NumPy's products of whole numbers
    normal.py       noise for private training             as SciPy's quantiles of the same bits
    pixels.py       images into numbers, smaller images    as PyTorch's arithmetic
    matmul.py       a faster kernel for large products     as the same product in double precision
    compiled.py     how Numba is asked, and what it keeps
"""
