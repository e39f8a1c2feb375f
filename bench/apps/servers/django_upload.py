"""Django, as gunicorn's application: reads a request's body, answers with its length (with `?digest`, its SHA-256)."""

import hashlib

from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpResponse
from django.urls import re_path

settings.configure(
    DEBUG=False,
    SECRET_KEY="bench",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    DATA_UPLOAD_MAX_MEMORY_SIZE=None,
    # (It says how long an answer is.)
    MIDDLEWARE=["django.middleware.common.CommonMiddleware"],
)


def upload(request):
    body = request.body
    text = hashlib.sha256(body).hexdigest() if "digest" in request.GET else str(len(body))
    return HttpResponse(text, content_type="text/plain")


urlpatterns = [re_path(r"^", upload)]
application = WSGIHandler()
