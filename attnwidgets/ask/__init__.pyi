# The public names of aw.ask, each loaded on first use.

from .asking import cell as cell
from .asking import choice as choice
from .asking import head as head
from .asking import layer as layer
from .asking import number as number
from .asking import order as order
from .asking import span as span
from .asking import text as text
from .asking import tokens as tokens
from .keeping import answers as answers
from .keeping import summary as summary
from .question import Question as Question
