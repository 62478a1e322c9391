"""Where the shop's pages are."""

from django.contrib import admin
from django.urls import path

from shop import views

urlpatterns = [
    path("", views.products),
    path("search/", views.search),
    path("product/<int:number>/", views.product, name="product"),
    path("api/products/", views.api),
    path("api/products/<int:number>/", views.api_product),
    path("api/products/<int:number>/price/", views.api_price),
    path("admin/", admin.site.urls),
]
