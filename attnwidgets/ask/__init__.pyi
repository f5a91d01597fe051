# The public names of aw.ask, each loaded on first use.

from .asked import answers as answers
from .asked import summary as summary
from .asking import cell as cell
from .asking import choice as choice
from .asking import head as head
from .asking import layer as layer
from .asking import number as number
from .asking import order as order
from .asking import span as span
from .asking import text as text
from .asking import tokens as tokens
from .question import Question as Question
