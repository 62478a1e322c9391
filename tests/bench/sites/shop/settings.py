"""The settings of the shop, as `django-admin startproject` and a deployment have them. Where its
database is, and how long it keeps a connection, says the environment."""

import os

DEBUG = False
SECRET_KEY = "a secret of a shop that sells nothing"
ALLOWED_HOSTS = ["pages.test"]
ROOT_URLCONF = "shop.urls"
WSGI_APPLICATION = "shop.wsgi.application"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "shop",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
_KEPT = os.environ["PAGES_CONN_MAX_AGE"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.mysql",
        "NAME": os.environ["PAGES_DB_NAME"],
        "USER": os.environ["PAGES_DB_USER"],
        "PASSWORD": os.environ["PAGES_DB_PASSWORD"],
        "HOST": os.environ["PAGES_DB_HOST"],
        "PORT": os.environ["PAGES_DB_PORT"],
        "CONN_MAX_AGE": None if _KEPT == "None" else int(_KEPT),
        "OPTIONS": {"charset": "utf8mb4"},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LOGIN_URL = "/admin/login/"
STATIC_URL = "/static/"
USE_TZ = True
TIME_ZONE = "UTC"
